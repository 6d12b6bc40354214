#include "api/c_status.hpp"

#include <string>

namespace megamoe::c {
namespace {

thread_local std::string kept;

}  // namespace

megamoe_status failed(megamoe_status status, const char* message) noexcept {
  try {
    kept = message;
  } catch (...) {
    kept.clear();
  }
  return status;
}

const char* last_error() noexcept {
  return kept.c_str();
}

}  // namespace megamoe::c
