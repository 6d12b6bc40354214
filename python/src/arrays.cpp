#include "python/src/arrays.hpp"

#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include "base/check.hpp"

namespace megamoe::python {
namespace {

using Code = nb::dlpack::dtype_code;

bool is_integer(std::uint8_t code) {
  return code == static_cast<std::uint8_t>(Code::Int) ||
         code == static_cast<std::uint8_t>(Code::UInt);
}

bool is_fp8_or_scale(std::uint8_t code) {
  return code == static_cast<std::uint8_t>(Code::Float8_E4M3FN) ||
         code == static_cast<std::uint8_t>(Code::Float8_E8M0FNU);
}

bool holds_element(const nb::dlpack::dtype& dtype, Element element) {
  if (dtype.lanes != 1) return false;
  const auto is = [&](Code code, int bits) {
    return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits;
  };
  switch (element) {
    case Element::bf16:
      return is(Code::Bfloat, 16) || (is_integer(dtype.code) && dtype.bits == 16);
    case Element::byte:
      return dtype.bits == 8 && (is_integer(dtype.code) || is_fp8_or_scale(dtype.code));
    case Element::f32:
      return is(Code::Float, 32);
    case Element::f16:
      return is(Code::Float, 16);
    case Element::i32:
      return is_integer(dtype.code) && dtype.bits == 32;
    case Element::i64:
      return is(Code::Int, 64);
  }
  return false;
}

nb::dlpack::dtype dtype_of(Element element) {
  switch (element) {
    case Element::bf16:
      return nb::dtype<std::uint16_t>();
    case Element::byte:
      return nb::dtype<std::uint8_t>();
    case Element::f32:
      return nb::dtype<float>();
    case Element::f16:
      return {static_cast<std::uint8_t>(Code::Float), 16, 1};
    case Element::i32:
      return nb::dtype<std::int32_t>();
    case Element::i64:
      return nb::dtype<std::int64_t>();
  }
  return {};
}

std::string described(const nb::dlpack::dtype& dtype) {
  std::string_view kind = "type ";
  switch (static_cast<Code>(dtype.code)) {
    case Code::Int:
      kind = "int";
      break;
    case Code::UInt:
      kind = "uint";
      break;
    case Code::Float:
      kind = "float";
      break;
    case Code::Bfloat:
      kind = "bfloat";
      break;
    case Code::Bool:
      kind = "bool";
      break;
    case Code::Float8_E4M3FN:
      return "float8_e4m3fn";
    case Code::Float8_E5M2:
      return "float8_e5m2";
    case Code::Float8_E8M0FNU:
      return "float8_e8m0fnu";
    default:
      return fmt::format("DLPack type {} of {} bits", dtype.code, dtype.bits);
  }
  return fmt::format("{}{}", kind, dtype.bits);
}

std::string described(Place place) {
  if (place.device_type == nb::device::cpu::value) return "host memory";
  if (place.device_type == nb::device::cuda::value) {
    return fmt::format("CUDA device {}", place.device_id);
  }
  return fmt::format("device {} of DLPack type {}", place.device_id, place.device_type);
}

template <class Array>
std::vector<std::int64_t> shape_of(const Array& array) {
  std::vector<std::int64_t> shape;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(static_cast<std::int64_t>(array.shape(axis)));
  }
  return shape;
}

template <class Array>
Place place_of(const Array& array) {
  // Pinned and managed memory is host memory to those who read it.
  const int type = array.device_type();
  constexpr int kCudaHost = 3;
  constexpr int kCudaManaged = 13;
  if (type == kCudaHost || type == kCudaManaged) return kHost;
  return {type, type == nb::device::cpu::value ? 0 : array.device_id()};
}

bool fits(const std::vector<std::int64_t>& got, std::initializer_list<std::int64_t> wanted) {
  if (got.size() != wanted.size()) return false;
  std::size_t axis = 0;
  for (std::int64_t size : wanted) {
    if (size >= 0 && got[axis] != size) return false;
    ++axis;
  }
  return true;
}

std::string listed(std::initializer_list<std::int64_t> shape) {
  std::string text;
  for (std::int64_t size : shape) {
    text += text.empty() ? "" : ", ";
    text += size < 0 ? "any" : std::to_string(size);
  }
  return '[' + text + ']';
}

template <class Array>
bool is_contiguous(const Array& array) {
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) != 1 && array.stride(axis) != expected && array.size() != 0) return false;
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  return true;
}

template <class Array>
void check_contiguous(const Array& array, std::string_view what) {
  check_argument(is_contiguous(array),
                 "{} has gaps or another order than rows one after another: pass a contiguous "
                 "array (numpy.ascontiguousarray, or .contiguous() in PyTorch)",
                 what);
}

template <class Array>
void check_element(const Array& array, Element element, std::string_view what) {
  check_argument(holds_element(array.dtype(), element), "{} has elements of {}: {} is wanted", what,
                 described(array.dtype()), name_of(element));
}

template <class Array>
void check_shape(const Array& array, std::initializer_list<std::int64_t> shape,
                 std::string_view what) {
  const std::vector<std::int64_t> got = shape_of(array);
  check_argument(fits(got, shape), "{} is [{}]: {} is wanted", what, fmt::join(got, ", "),
                 listed(shape));
}

template <class Array>
void check_place(const Array& array, Place wanted, std::string_view what) {
  check_argument(place_of(array) == wanted, "{} is in {}: {} is wanted", what,
                 described(place_of(array)), described(wanted));
}

template <class Array>
Array imported(nb::handle object, std::string_view what, std::string_view reason) {
  Array array;
  if (!nb::try_cast(object, array, false)) {
    const std::string type = nb::cast<std::string>(object.type().attr("__name__"));
    fail(ErrorCode::invalid_argument,
         "{} is a {}: {} is wanted, of NumPy, or of any library with DLPack (__dlpack__)", what,
         type, reason);
  }
  return array;
}

}  // namespace

std::string_view name_of(Element element) {
  switch (element) {
    case Element::bf16:
      return "bfloat16 (or its bits as uint16)";
    case Element::byte:
      return "float8 or uint8";
    case Element::f32:
      return "float32";
    case Element::f16:
      return "float16";
    case Element::i32:
      return "int32";
    case Element::i64:
      return "int64";
  }
  return "?";
}

ArrayIn::ArrayIn(nb::handle object, std::string_view what)
    : array_(imported<nb::ndarray<nb::ro>>(object, what, "an array")), what_(what) {}

Place ArrayIn::place() const {
  return place_of(array_);
}

bool ArrayIn::holds(Element element) const {
  return holds_element(array_.dtype(), element);
}

void ArrayIn::want(Element element, std::initializer_list<std::int64_t> shape) const {
  check_element(array_, element, what_);
  check_shape(array_, shape, what_);
}

void ArrayIn::want_ndim(std::initializer_list<std::size_t> any_of) const {
  for (std::size_t wanted : any_of) {
    if (ndim() == wanted) return;
  }
  fail(ErrorCode::invalid_argument, "{} is [{}]: {} dimensions are wanted", what_,
       fmt::join(shape_of(array_), ", "), fmt::join(any_of, " or "));
}

void ArrayIn::want_place(Place place) const {
  check_place(array_, place, what_);
}

void ArrayIn::want_contiguous() const {
  check_contiguous(array_, what_);
}

void ArrayIn::want_dense_rows() const {
  const std::size_t last = ndim() - 1;
  check_argument(ndim() >= 1 && (array_.stride(last) == 1 || array_.shape(last) <= 1),
                 "{} has columns {} elements apart: neighbours are wanted", what_,
                 ndim() >= 1 ? array_.stride(last) : 0);
}

ArrayOut::ArrayOut(nb::handle object, std::string_view what, Element element,
                   std::initializer_list<std::int64_t> shape, Place place)
    : array_(imported<nb::ndarray<>>(object, what, "an array that may be written")) {
  check_element(array_, element, what);
  check_shape(array_, shape, what);
  check_place(array_, place, what);
  check_contiguous(array_, what);
}

nb::object array_of(void* memory, Element element, std::initializer_list<std::int64_t> shape,
                    nb::handle owner, Place place) {
  std::vector<std::size_t> sizes;
  for (std::int64_t size : shape) sizes.push_back(static_cast<std::size_t>(size));
  const nb::dlpack::dtype dtype = dtype_of(element);
  if (place.device_type == nb::device::cpu::value) {
    return nb::cast(nb::ndarray<nb::numpy>(memory, sizes.size(), sizes.data(), owner, nullptr,
                                           dtype, place.device_type, place.device_id));
  }
  return nb::cast(nb::ndarray<>(memory, sizes.size(), sizes.data(), owner, nullptr, dtype,
                                place.device_type, place.device_id));
}

}  // namespace megamoe::python
