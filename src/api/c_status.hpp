// Exceptions as the status codes of the C interface.
#pragma once

#include <exception>
#include <new>

#include "megamoe/error.hpp"
#include "megamoe/megamoe.h"

#include "api/c_translate.hpp"

namespace megamoe::c {

static_assert(static_cast<int>(ErrorCode::invalid_argument) + 1 == MEGAMOE_INVALID_ARGUMENT &&
              static_cast<int>(ErrorCode::unsupported) + 1 == MEGAMOE_UNSUPPORTED &&
              static_cast<int>(ErrorCode::format) + 1 == MEGAMOE_FORMAT &&
              static_cast<int>(ErrorCode::io) + 1 == MEGAMOE_IO &&
              static_cast<int>(ErrorCode::out_of_memory) + 1 == MEGAMOE_OUT_OF_MEMORY &&
              static_cast<int>(ErrorCode::mismatch) + 1 == MEGAMOE_MISMATCH &&
              static_cast<int>(ErrorCode::deadline) + 1 == MEGAMOE_DEADLINE &&
              static_cast<int>(ErrorCode::peer_lost) + 1 == MEGAMOE_PEER_LOST &&
              static_cast<int>(ErrorCode::aborted) + 1 == MEGAMOE_ABORTED &&
              static_cast<int>(ErrorCode::internal) + 1 == MEGAMOE_INTERNAL);

/// Keeps the message as this thread's last error.
megamoe_status failed(megamoe_status status, const char* message) noexcept;
/// "" before the first.
const char* last_error() noexcept;

/// Runs `work`; what it throws becomes a status and this thread's last error.
template <class Work>
megamoe_status guarded(const Work& work) noexcept {
  try {
    work();
    return MEGAMOE_OK;
  } catch (const Error& error) {
    return failed(static_cast<megamoe_status>(static_cast<int>(error.code()) + 1), error.what());
  } catch (const std::bad_alloc&) {
    return failed(MEGAMOE_OUT_OF_MEMORY, "the system refused memory: ask for a smaller layer");
  } catch (const std::exception& error) {
    return failed(MEGAMOE_INTERNAL, error.what());
  } catch (...) {
    return failed(MEGAMOE_INTERNAL, "an exception that is none of megamoe's");
  }
}

/// The same for functions that make a handle: `*handle` is what `make` returns, or NULL.
template <class Handle, class Make>
megamoe_status made(Handle** handle, const char* name, const Make& make) noexcept {
  return guarded([&] {
    Handle*& place = required(handle, name);
    place = nullptr;
    // guarded() catches what this throws.
    place = new Handle(make());  // NOLINT(bugprone-unhandled-exception-at-new)
  });
}

}  // namespace megamoe::c
