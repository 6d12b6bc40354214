#include "routing/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.hpp"
#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

// DeepSeek's guard against a sum of zero, far below any sum of scores that carries information.
constexpr double kLeastSum = 1e-20;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// Larger is better; NaN is worst, and a total order needs that said.
double rank_of(double score) {
  return std::isnan(score) ? kLowest : score;
}

std::vector<double> scores_of(const RouterConfig& router, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  switch (router.scores) {
    case RouterScores::softmax: {
      double largest = kLowest;
      for (double score : scores) largest = std::max(largest, rank_of(score));
      double sum = 0;
      for (double& score : scores) {
        // An infinite largest logit would give infinity minus itself; it shares all of the weight.
        score = score == largest ? 1.0 : std::exp(score - largest);
        sum += std::isnan(score) ? 0.0 : score;
      }
      for (double& score : scores) score /= sum;
      break;
    }
    case RouterScores::sigmoid:
      for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
      break;
    case RouterScores::sqrt_softplus:
      // softplus(x) = log(1 + e^x), written so that e^x cannot overflow.
      for (double& score : scores)
        score = std::sqrt(std::max(score, 0.0) + std::log1p(std::exp(-std::fabs(score))));
      break;
  }
  return scores;
}

/// What the choice compares. A softmax keeps the order of its logits until it rounds or underflows:
/// where nothing is added to it the logits themselves decide.
std::vector<double> ranks_of(const RouterConfig& router, std::span<const float> logits,
                             const std::vector<double>& scores) {
  const bool by_logits =
      router.scores == RouterScores::softmax && router.selection_bias.empty() && router.groups == 1;
  std::vector<double> ranks;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const double bias = router.selection_bias.empty() ? 0.0 : router.selection_bias[e];
    ranks.push_back(rank_of(by_logits ? double{logits[e]} : scores[e] + bias));
  }
  return ranks;
}

/// The ids of the `count` best of `ranks`, best first; ties go to the lower id.
std::vector<std::int64_t> best_of(const std::vector<double>& ranks, std::int64_t count) {
  std::vector<std::int64_t> ids(ranks.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  std::stable_sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) {
    return ranks[static_cast<std::size_t>(a)] > ranks[static_cast<std::size_t>(b)];
  });
  ids.resize(static_cast<std::size_t>(count));
  return ids;
}

/// The experts that may be chosen: those of the best groups, each ranked by the sum of its two best
/// experts. Ascending.
std::vector<std::int64_t> candidates_of(const RouterConfig& router,
                                        const std::vector<double>& ranks) {
  const std::int64_t size = router.experts / router.groups;
  std::vector<double> group_ranks;
  for (std::int64_t g = 0; g < router.groups; ++g) {
    double best = kLowest;
    double second = kLowest;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      const double rank = ranks[static_cast<std::size_t>(e)];
      if (rank > best) {
        second = best;
        best = rank;
      } else if (rank > second) {
        second = rank;
      }
    }
    // Infinity and a NaN's rank add up to NaN.
    group_ranks.push_back(size == 1 ? best : rank_of(best + second));
  }
  std::vector<std::int64_t> groups = best_of(group_ranks, router.top_groups);
  std::sort(groups.begin(), groups.end());
  std::vector<std::int64_t> candidates;
  for (std::int64_t g : groups) {
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) candidates.push_back(e);
  }
  return candidates;
}

void check_router(const RouterConfig& router) {
  check_argument(router.experts >= 1 && router.hidden >= 1,
                 "a router of {} experts over {} features: at least one of each is wanted",
                 router.experts, router.hidden);
  check_argument(
      router.groups >= 1 && router.experts % router.groups == 0 && router.top_groups >= 1 &&
          router.top_groups <= router.groups,
      "{} of {} groups of {} experts: groups must divide the experts, and hold the top ones",
      router.top_groups, router.groups, router.experts);
  const std::int64_t reachable = router.experts / router.groups * router.top_groups;
  check_argument(router.top_k >= 1 && router.top_k <= reachable,
                 "top_k is {}: 1 to {} is wanted, the experts of the groups that stay",
                 router.top_k, reachable);
  const auto has = [](const std::vector<float>& values, std::int64_t count) {
    return static_cast<std::int64_t>(values.size()) == count;
  };
  std::int64_t weights = 0;
  check_argument(!__builtin_mul_overflow(router.experts, router.hidden, &weights) &&
                     has(router.weight, weights),
                 "the router's weight has {} values: {} x {} are wanted", router.weight.size(),
                 router.experts, router.hidden);
  check_argument(router.bias.empty() || has(router.bias, router.experts),
                 "the router's bias has {} values: {} are wanted", router.bias.size(),
                 router.experts);
  check_argument(router.selection_bias.empty() || has(router.selection_bias, router.experts),
                 "the router's selection bias has {} values: {} are wanted",
                 router.selection_bias.size(), router.experts);
}

}  // namespace

void choose_experts(const RouterConfig& router, std::span<const float> logits,
                    std::span<std::int64_t> experts, std::span<float> weights) {
  const std::vector<double> scores = scores_of(router, logits);
  const std::vector<double> ranks = ranks_of(router, logits, scores);
  const std::vector<std::int64_t> candidates = candidates_of(router, ranks);
  std::vector<double> candidate_ranks;
  for (std::int64_t e : candidates) candidate_ranks.push_back(ranks[static_cast<std::size_t>(e)]);
  const std::vector<std::int64_t> chosen = best_of(candidate_ranks, router.top_k);
  double sum = 0;
  const auto score_of = [&](std::int64_t k) {
    const double score = scores[static_cast<std::size_t>(
        candidates[static_cast<std::size_t>(chosen[static_cast<std::size_t>(k)])])];
    return std::isnan(score) ? 0.0 : score;
  };
  for (std::int64_t k = 0; k < router.top_k; ++k) sum += score_of(k);
  const double factor = router.scaling / (router.renormalise ? sum + kLeastSum : 1.0);
  for (std::int64_t k = 0; k < router.top_k; ++k) {
    experts[static_cast<std::size_t>(k)] =
        candidates[static_cast<std::size_t>(chosen[static_cast<std::size_t>(k)])];
    weights[static_cast<std::size_t>(k)] = static_cast<float>(score_of(k) * factor);
  }
}

void route(const RouterConfig& router, std::span<const BFloat16> x, std::span<std::int64_t> experts,
           std::span<float> weights) {
  check_router(router);
  const auto hidden = static_cast<std::size_t>(router.hidden);
  const auto top_k = static_cast<std::size_t>(router.top_k);
  check_argument(x.size() % hidden == 0, "x has {} values: whole rows of {} are wanted", x.size(),
                 hidden);
  const std::size_t tokens = x.size() / hidden;
  check_argument(experts.size() == tokens * top_k && weights.size() == tokens * top_k,
                 "ids have {} places and weights {}: {} tokens x {} slots are wanted",
                 experts.size(), weights.size(), tokens, top_k);
  std::vector<float> logits(static_cast<std::size_t>(router.experts));
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t e = 0; e < logits.size(); ++e) {
      double sum = router.bias.empty() ? 0.0 : router.bias[e];
      for (std::size_t c = 0; c < hidden; ++c)
        sum += double{to_float(x[t * hidden + c])} * router.weight[e * hidden + c];
      logits[e] = static_cast<float>(sum);
    }
    choose_experts(router, logits, experts.subspan(t * top_k, top_k),
                   weights.subspan(t * top_k, top_k));
  }
}

}  // namespace megamoe
