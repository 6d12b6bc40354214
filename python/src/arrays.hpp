// Arrays of other frameworks as plain memory, and plain memory as arrays: DLPack and the buffer
// protocol both ways, never a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "megamoe/types.hpp"

namespace megamoe::python {

namespace nb = nanobind;

/// What an element is, whatever its framework calls it. Formats that NumPy lacks also come as
/// unsigned or signed integers of their width, which hold the bits.
enum class Element { bf16, byte, f32, f16, i32, i64 };
std::string_view name_of(Element element);

/// Where memory is, in DLPack's numbers.
struct Place {
  int device_type = nb::device::cpu::value;
  int device_id = 0;
  friend bool operator==(const Place&, const Place&) = default;
};
inline constexpr Place kHost{};

/// An array that a caller gave. The memory lives as long as this value.
class ArrayIn {
 public:
  /// Throws Error{invalid_argument} that names `what` for anything but an array.
  ArrayIn(nb::handle object, std::string_view what);

  std::size_t ndim() const { return array_.ndim(); }
  std::int64_t size(std::size_t axis) const {
    return static_cast<std::int64_t>(array_.shape(axis));
  }
  /// In elements.
  std::int64_t stride(std::size_t axis) const { return array_.stride(axis); }
  std::int64_t item_bytes() const { return array_.dtype().bits / 8; }
  std::int64_t values() const { return static_cast<std::int64_t>(array_.size()); }
  Place place() const;
  std::string_view what() const { return what_; }

  bool holds(Element element) const;
  /// Throws Error{invalid_argument} with wanted, got and fix. Sizes of -1 may be any.
  void want(Element element, std::initializer_list<std::int64_t> shape) const;
  void want_ndim(std::initializer_list<std::size_t> any_of) const;
  void want_place(Place place) const;
  /// Rows, planes and so on follow each other without holes.
  void want_contiguous() const;
  /// Neighbours of the last axis are neighbours in memory.
  void want_dense_rows() const;

  const std::byte* bytes() const { return static_cast<const std::byte*>(array_.data()); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes());
  }
  template <class T>
  std::span<const T> span() const {
    return {as<T>(), static_cast<std::size_t>(values())};
  }

 private:
  nb::ndarray<nb::ro> array_;
  std::string_view what_;
};

/// An array that is written: contiguous, of this shape and element, at this place.
class ArrayOut {
 public:
  ArrayOut(nb::handle object, std::string_view what, Element element,
           std::initializer_list<std::int64_t> shape, Place place = kHost);

  std::byte* bytes() const { return static_cast<std::byte*>(array_.data()); }
  template <class T>
  std::span<T> span() const {
    return {reinterpret_cast<T*>(array_.data()), array_.size()};
  }

 private:
  nb::ndarray<> array_;
};

/// Memory of `owner` as an array: of NumPy on the host, else an object with __dlpack__.
/// `element` bf16 becomes uint16, byte uint8.
nb::object array_of(void* memory, Element element, std::initializer_list<std::int64_t> shape,
                    nb::handle owner, Place place = kHost);

}  // namespace megamoe::python
