// megamoe::Error as the Python classes of megamoe._errors, with the same sentence.
#include <array>
#include <exception>

#include "megamoe/error.hpp"

#include "python/src/bindings.hpp"

namespace megamoe::python {
namespace {

namespace nb = nanobind;

constexpr std::size_t kCodes = static_cast<std::size_t>(ErrorCode::internal) + 1;

/// Borrowed: the module keeps the classes alive.
std::array<PyObject*, kCodes>& classes() {
  static std::array<PyObject*, kCodes> all{};
  return all;
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    PyErr_SetString(classes().at(static_cast<std::size_t>(error.code())), error.what());
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  const nb::module_ errors = nb::module_::import_("megamoe._errors");
  const nb::object by_code = errors.attr("BY_CODE");
  module.attr("_error_classes") = by_code;
  for (std::size_t code = 0; code < kCodes; ++code) {
    classes()[code] = nb::object(by_code[code]).ptr();
  }
  nb::register_exception_translator(translate);
}

}  // namespace megamoe::python
