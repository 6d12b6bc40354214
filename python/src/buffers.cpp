// Symmetric buffers: a layer's arena that exists before the layer does.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/stl/vector.h>

#include "megamoe/group.hpp"

#include "api/group_state.hpp"
#include "base/check.hpp"
#include "layout/arena.hpp"
#include "numerics/recipe.hpp"
#include "plan/plan.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"
#include "routing/placement.hpp"
#include "symmetric/arena.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

/// The arena that the group's layers of this shape will use.
class SymmetricBuffer {
 public:
  SymmetricBuffer(const LayerConfig& config, const Group& group)
      : group_(group), shape_(checked_shape(config, group.ranks())) {
    const nb::gil_scoped_release waiting;
    arena_ = group_.state().arena(shape_);
  }

  std::int64_t capacity() const { return shape_.max_tokens; }
  std::int64_t local_experts() const { return megamoe::local_experts(shape_, group_.rank()); }

  nb::object region(nb::handle self, RegionId id, Element element, std::int64_t rows) const {
    const Region& region = arena_->layout()[id];
    const std::int64_t row_bytes = region.bank_bytes / rows;
    return array_of(arena_->mine<std::byte>(id), element, {rows, row_bytes / size_of(element)},
                    self);
  }
  nb::object input(nb::handle self, RegionId id, Element element) const {
    return region(self, id, element, shape_.max_tokens);
  }
  nb::object pool(nb::handle self, RegionId id, Element element) const {
    return region(self, id, element, shape_.pool_rows());
  }

  /// All data regions. Control words are not in it, so that a caller may fill it between calls.
  nb::object data(nb::handle self) const {
    return array_of(arena_->mine<std::byte>(kFirstData), Element::byte, {data_bytes()}, self);
  }
  std::vector<std::uintptr_t> data_pointers() const {
    std::vector<std::uintptr_t> pointers;
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      pointers.push_back(reinterpret_cast<std::uintptr_t>(arena_->at<std::byte>(kFirstData, rank)));
    }
    return pointers;
  }

  Element x_element() const {
    return x_format(shape_.recipe) == XFormat::bf16 ? Element::bf16 : Element::byte;
  }
  Element x_scale_element() const {
    // Four UE8M0 bytes in a word, or one f32.
    return x_format(shape_.recipe) == XFormat::e4m3_ue8m0_32 ? Element::i32 : Element::f32;
  }
  Element intermediate_element() const {
    return intermediate_format(shape_.recipe) == IntermediateFormat::bf16 ? Element::bf16
                                                                          : Element::byte;
  }
  bool has_scales() const { return x_format(shape_.recipe) != XFormat::bf16; }

 private:
  static constexpr RegionId kFirstData = RegionId::source_list;

  static LayerShape checked_shape(const LayerConfig& config, int ranks) {
    validate(config);
    check_argument(config.max_tokens % kCapacityStep == 0,
                   "a buffer of {} tokens per rank: a multiple of {} is wanted", config.max_tokens,
                   kCapacityStep);
    return make_shape(config, ranks);
  }
  static std::int64_t size_of(Element element) {
    switch (element) {
      case Element::byte:
        return 1;
      case Element::bf16:
      case Element::f16:
        return 2;
      case Element::i32:
      case Element::f32:
        return 4;
      case Element::i64:
        break;
    }
    return 8;
  }
  std::int64_t data_bytes() const {
    const ArenaLayout& layout = arena_->layout();
    return layout.bytes - layout[kFirstData].offset_bytes;
  }

  Group group_;
  LayerShape shape_;
  std::shared_ptr<Arena> arena_;
};

/// Data regions follow the control regions, so that the data are one piece.
constexpr bool data_regions_are_last() {
  const ArenaLayout layout = make_arena_layout({.hidden = 128,
                                                .intermediate = 128,
                                                .experts = 2,
                                                .top_k = 1,
                                                .ranks = 1,
                                                .max_tokens = 384});
  for (std::size_t i = 0; i < layout.regions.size(); ++i) {
    const bool data = i >= static_cast<std::size_t>(RegionId::source_list);
    if ((layout.regions[i].kind == RegionKind::data) != data) return false;
  }
  return true;
}
static_assert(data_regions_are_last());

}  // namespace

void bind_buffers(nb::module_& module) {
  using Self = SymmetricBuffer;
  const auto of = [](nb::handle self) -> const Self& { return nb::cast<const Self&>(self); };
  nb::class_<Self>(module, "SymmetricBuffer")
      .def(nb::init<const LayerConfig&, const Group&>(), "config"_a, "group"_a)
      .def_prop_ro("capacity", &Self::capacity)
      .def_prop_ro("local_experts", &Self::local_experts)
      .def_prop_ro("data", [of](nb::handle self) { return of(self).data(self); })
      .def_prop_ro("data_pointers", &Self::data_pointers)
      .def_prop_ro(
          "x",
          [of](nb::handle self) { return of(self).input(self, RegionId::x, of(self).x_element()); })
      .def_prop_ro("x_scales",
                   [of](nb::handle self) {
                     if (!of(self).has_scales()) return nb::object(nb::none());
                     return of(self).input(self, RegionId::x_scales, of(self).x_scale_element());
                   })
      .def_prop_ro("experts",
                   [of](nb::handle self) {
                     return of(self).input(self, RegionId::expert_ids, Element::i64);
                   })
      .def_prop_ro("weights",
                   [of](nb::handle self) {
                     return of(self).input(self, RegionId::expert_weights, Element::f32);
                   })
      .def_prop_ro("gemm1_input",
                   [of](nb::handle self) {
                     return of(self).pool(self, RegionId::gemm1_input, of(self).x_element());
                   })
      .def_prop_ro("gemm1_input_scales",
                   [of](nb::handle self) {
                     if (!of(self).has_scales()) return nb::object(nb::none());
                     return of(self).pool(self, RegionId::gemm1_input_scales,
                                          of(self).x_scale_element());
                   })
      .def_prop_ro("gemm2_input",
                   [of](nb::handle self) {
                     return of(self).pool(self, RegionId::gemm2_input,
                                          of(self).intermediate_element());
                   })
      .def_prop_ro("gemm2_input_scales", [of](nb::handle self) {
        if (!of(self).has_scales()) return nb::object(nb::none());
        return of(self).pool(self, RegionId::gemm2_input_scales, Element::byte);
      });
}

}  // namespace megamoe::python
