// A step that every rank takes by itself, and whose failure anywhere is every rank's.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "symmetric/communicator.hpp"

namespace megamoe {

/// Collective. Runs `step`; when it throws an Error at any rank, every rank throws one with its
/// code that names the rank.
template <class Step>
void agree(Communicator& communicator, std::string_view what, const Step& step) {
  std::string outcome;  // empty: it went well; else the code as a digit, then the message
  try {
    step();
  } catch (const Error& error) {
    outcome = static_cast<char>('0' + static_cast<int>(error.code())) + std::string(error.what());
  }
  const auto outcomes =
      communicator.all_gather(std::as_bytes(std::span(outcome.data(), outcome.size())), what);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) continue;
    const std::string text(reinterpret_cast<const char*>(outcomes[rank].data()),
                           outcomes[rank].size());
    fail(static_cast<ErrorCode>(text[0] - '0'), "rank {}: {}", rank, text.substr(1));
  }
}

}  // namespace megamoe
