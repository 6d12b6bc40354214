// The one exception type of megamoe.
#pragma once

#include <stdexcept>
#include <string>

namespace megamoe {

/// What kind of thing went wrong; the message says the rest.
enum class ErrorCode {
  invalid_argument,  ///< the caller passed something that no call could accept
  unsupported,       ///< understood, but not available in this build, backend or machine
  format,            ///< a file is broken, or holds something that is not understood
  io,                ///< the operating system refused to open, map, read or write
  out_of_memory,     ///< memory needed and memory available are in the message
  mismatch,   ///< ranks disagree: on shape, recipe, version, or on which layer is called next
  deadline,   ///< a wait passed its deadline; the message names rank, role, signal, seen, wanted
  peer_lost,  ///< another rank died or left; the message names it
  aborted,    ///< the group was given up; the message names the first cause
  internal,   ///< a defect of megamoe
};

/// `what()` states what was wanted, what was got, and how to fix it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace megamoe
