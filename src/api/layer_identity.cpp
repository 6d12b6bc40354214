#include "api/layer_identity.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megamoe/version.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "numerics/recipe.hpp"

namespace megamoe {
namespace {

using Identity = std::vector<std::pair<std::string, std::string>>;

Identity identity_of(const LayerConfig& config, const PlanIdentity& plan) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  return {{"version", version()},
          {"hidden", number(config.hidden)},
          {"intermediate", number(config.intermediate)},
          {"experts", number(config.experts)},
          {"shared_experts", number(config.shared_experts)},
          {"top_k", number(config.top_k)},
          {"max_tokens", number(config.max_tokens)},
          {"recipe", std::string(name_of(config.recipe))},
          {"shared_weights", config.shared_experts == 0
                                 ? std::string("none")
                                 : std::string(name_of(shared_weight_format(config)))},
          {"activation", std::string(name_of(config.activation))},
          {"activation_limit",
           config.activation_limit ? number(*config.activation_limit) : std::string("none")},
          {"kernels", plan.kernels},
          {"arena bytes", number(plan.arena_bytes)}};
}

std::string as_text(const Identity& identity) {
  std::string text;
  for (const auto& [key, value] : identity) text += key + '=' + value + '\n';
  return text;
}

/// The value of `key` in another rank's text, or "nothing".
std::string value_in(std::string_view text, const std::string& key) {
  const std::size_t at = text.find(key + '=');
  if (at == std::string_view::npos) return "nothing";
  const std::size_t begin = at + key.size() + 1;
  return std::string(text.substr(begin, text.find('\n', begin) - begin));
}

}  // namespace

void compare_identities(Communicator& communicator, const LayerConfig& config,
                        const PlanIdentity& plan) {
  const Identity identity = identity_of(config, plan);
  const std::string own = as_text(identity);
  const auto all =
      communicator.all_gather(std::as_bytes(std::span(own.data(), own.size())), "comparing layers");
  // Rank 0 is the measure, so that every rank names the same difference first.
  const auto text_of = [&all](std::size_t rank) {
    return std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (text_of(rank) == text_of(0)) continue;
    for (const auto& [key, value] : identity) {
      const std::string first = value_in(text_of(0), key);
      const std::string other = value_in(text_of(rank), key);
      if (first == other) continue;
      fail(ErrorCode::mismatch,
           "ranks disagree on {}: rank 0 has {}, rank {} has {}: make them equal", key, first, rank,
           other);
    }
    fail(ErrorCode::mismatch, "rank {} describes its layer unlike rank 0: their versions differ",
         rank);
  }
}

}  // namespace megamoe
