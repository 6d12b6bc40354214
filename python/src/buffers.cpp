// Symmetric buffers: a layer's arena that exists before the layer does.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/stl/vector.h>

#include "megamoe/backend.hpp"
#include "megamoe/group.hpp"

#include "api/group_state.hpp"
#include "base/check.hpp"
#include "layout/arena.hpp"
#include "layout/sm90_arena.hpp"
#include "numerics/recipe.hpp"
#include "plan/plan.hpp"
#include "python/src/arrays.hpp"
#include "python/src/bindings.hpp"
#include "python/src/places.hpp"
#include "routing/placement.hpp"
#include "symmetric/arena.hpp"

namespace megamoe::python {
namespace {

using nb::literals::operator""_a;

/// The regions that are shown, and what they are called in the arena of each backend.
struct ShownRegion {
  RegionId cpu;
  sm90::GpuRegion gpu;
};
constexpr ShownRegion kX{RegionId::x, sm90::GpuRegion::x};
constexpr ShownRegion kXScales{RegionId::x_scales, sm90::GpuRegion::x_scales};
constexpr ShownRegion kExperts{RegionId::expert_ids, sm90::GpuRegion::expert_ids};
constexpr ShownRegion kWeights{RegionId::expert_weights, sm90::GpuRegion::expert_weights};
constexpr ShownRegion kGemm1Input{RegionId::gemm1_input, sm90::GpuRegion::gemm1_input};
constexpr ShownRegion kGemm1Scales{RegionId::gemm1_input_scales,
                                   sm90::GpuRegion::gemm1_input_scales};
constexpr ShownRegion kGemm2Input{RegionId::gemm2_input, sm90::GpuRegion::gemm2_input};
constexpr ShownRegion kGemm2Scales{RegionId::gemm2_input_scales,
                                   sm90::GpuRegion::gemm2_input_scales};
/// The first that holds data; the others follow.
constexpr ShownRegion kFirstData{RegionId::source_list, sm90::GpuRegion::source_list};

/// The arena that the group's layers of this shape will use.
class SymmetricBuffer {
 public:
  SymmetricBuffer(const LayerConfig& config, const Group& group)
      : group_(group), place_(place_of(group)), shape_(checked_shape(config, group.ranks())) {
    if (place_ != kHost) choose_backend(config, group.ranks(), Backend::cuda);  // refuses by name
    const nb::gil_scoped_release waiting;
    if (place_ == kHost) {
      arena_ = group_.state().arena(shape_);
    } else {
      gpu_layout_ = sm90::make_gpu_arena_layout(shape_);
      gpu_arena_ = group_.state().gpu()->arena(shape_);
    }
  }

  std::int64_t capacity() const { return shape_.max_tokens; }
  std::int64_t local_experts() const { return megamoe::local_experts(shape_, group_.rank()); }

  /// A region as `rows` rows of elements.
  nb::object region(nb::handle self, const ShownRegion& shown, Element element,
                    std::int64_t rows) const {
    const std::int64_t bytes =
        arena_ ? arena_->layout()[shown.cpu].bank_bytes : gpu_layout_[shown.gpu].bank_bytes;
    // The GPU's regions end on cache lines: less than one byte per row.
    const std::int64_t row_bytes = bytes / rows;
    return array_of(begin(shown, group_.rank()), element, {rows, row_bytes / size_of(element)},
                    self, place_);
  }
  nb::object input(nb::handle self, const ShownRegion& shown, Element element) const {
    return region(self, shown, element, shape_.max_tokens);
  }
  nb::object pool(nb::handle self, const ShownRegion& shown, Element element) const {
    return region(self, shown, element, shape_.pool_rows());
  }

  /// All data regions. Control words are not in it, so that a caller may fill it between calls.
  nb::object data(nb::handle self) const {
    const std::int64_t bytes =
        arena_ ? arena_->layout().bytes - arena_->layout()[kFirstData.cpu].offset_bytes
               : gpu_layout_.bytes - gpu_layout_[kFirstData.gpu].offset_bytes;
    return array_of(begin(kFirstData, group_.rank()), Element::byte, {bytes}, self, place_);
  }
  std::vector<std::uintptr_t> data_pointers() const {
    std::vector<std::uintptr_t> pointers;
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      pointers.push_back(reinterpret_cast<std::uintptr_t>(begin(kFirstData, rank)));
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
  Element intermediate_scale_element() const { return arena_ ? Element::byte : Element::i32; }
  bool has_scales() const { return x_format(shape_.recipe) != XFormat::bf16; }

 private:
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
  std::byte* begin(const ShownRegion& shown, int rank) const {
    if (arena_) return arena_->at<std::byte>(shown.cpu, rank);
    return gpu_arena_->bases(group_.ranks())[static_cast<std::size_t>(rank)] +
           gpu_layout_[shown.gpu].offset_bytes;
  }

  Group group_;
  Place place_;
  LayerShape shape_;
  std::shared_ptr<Arena> arena_;  // null on a device
  std::shared_ptr<GpuRankArena> gpu_arena_;
  sm90::GpuArenaLayout gpu_layout_;
};

/// Data regions follow the control regions, so that the data are one piece.
template <class Layout>
constexpr bool data_follow_control(const Layout& layout, std::size_t first_data) {
  for (std::size_t i = 0; i < layout.regions.size(); ++i) {
    if ((layout.regions[i].kind == RegionKind::data) != (i >= first_data)) return false;
  }
  return true;
}
constexpr LayerShape kAnyShape{.hidden = 128,
                               .intermediate = 128,
                               .experts = 2,
                               .top_k = 1,
                               .ranks = 1,
                               .max_tokens = kCapacityStep};
static_assert(data_follow_control(make_arena_layout(kAnyShape),
                                  static_cast<std::size_t>(kFirstData.cpu)));
static_assert(data_follow_control(sm90::make_gpu_arena_layout(kAnyShape),
                                  static_cast<std::size_t>(kFirstData.gpu)));

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
      .def_prop_ro("x",
                   [of](nb::handle self) { return of(self).input(self, kX, of(self).x_element()); })
      .def_prop_ro("x_scales",
                   [of](nb::handle self) {
                     if (!of(self).has_scales()) return nb::object(nb::none());
                     return of(self).input(self, kXScales, of(self).x_scale_element());
                   })
      .def_prop_ro("experts",
                   [of](nb::handle self) { return of(self).input(self, kExperts, Element::i64); })
      .def_prop_ro("weights",
                   [of](nb::handle self) { return of(self).input(self, kWeights, Element::f32); })
      .def_prop_ro(
          "gemm1_input",
          [of](nb::handle self) { return of(self).pool(self, kGemm1Input, of(self).x_element()); })
      .def_prop_ro("gemm1_input_scales",
                   [of](nb::handle self) {
                     if (!of(self).has_scales()) return nb::object(nb::none());
                     return of(self).pool(self, kGemm1Scales, of(self).x_scale_element());
                   })
      .def_prop_ro("gemm2_input",
                   [of](nb::handle self) {
                     return of(self).pool(self, kGemm2Input, of(self).intermediate_element());
                   })
      .def_prop_ro("gemm2_input_scales", [of](nb::handle self) {
        if (!of(self).has_scales()) return nb::object(nb::none());
        return of(self).pool(self, kGemm2Scales, of(self).intermediate_scale_element());
      });
}

}  // namespace megamoe::python
