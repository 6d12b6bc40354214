#include "routing/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Choice {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
};

Choice choose(const RouterConfig& router, const std::vector<float>& logits) {
  const auto top_k = static_cast<std::size_t>(router.top_k);
  Choice choice{std::vector<std::int64_t>(top_k, -7), std::vector<float>(top_k, kNaN)};
  choose_experts(router, logits, choice.experts, choice.weights);
  return choice;
}

RouterConfig router_of(RouterScores scores, std::int64_t experts, std::int64_t top_k) {
  return {.experts = experts, .hidden = 1, .top_k = top_k, .scores = scores};
}

using Ids = std::vector<std::int64_t>;

void expect_near(const std::vector<float>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t s = 0; s < got.size(); ++s) EXPECT_NEAR(got[s], wanted[s], 1e-6) << "slot " << s;
}

TEST(Router, SoftmaxWeightsAreThoseOfAllExpertsUnlessRenormalised) {
  const std::vector<float> logits = {1, 3, 2, 0};
  const double sum = std::exp(1) + std::exp(3) + std::exp(2) + 1;
  RouterConfig router = router_of(RouterScores::softmax, 4, 2);
  router.renormalise = false;
  EXPECT_EQ(choose(router, logits).experts, (Ids{1, 2}));
  expect_near(choose(router, logits).weights, {std::exp(3) / sum, std::exp(2) / sum});
  router.renormalise = true;
  const double chosen = std::exp(3) + std::exp(2);
  expect_near(choose(router, logits).weights, {std::exp(3) / chosen, std::exp(2) / chosen});
}

TEST(Router, SigmoidScoresOfDeepSeekV3AreRenormalisedAndScaled) {
  RouterConfig router = router_of(RouterScores::sigmoid, 4, 2);
  router.scaling = 2.5f;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Choice choice = choose(router, {0.5f, -1, 2, -3});
  EXPECT_EQ(choice.experts, (Ids{2, 0}));
  const double sum = sigmoid(2) + sigmoid(0.5);
  expect_near(choice.weights, {2.5 * sigmoid(2) / sum, 2.5 * sigmoid(0.5) / sum});
}

TEST(Router, SquareRootsOfSoftplusOfDeepSeekV4AreRenormalisedAndScaled) {
  RouterConfig router = router_of(RouterScores::sqrt_softplus, 3, 2);
  router.scaling = 1.5f;
  const auto score = [](double x) { return std::sqrt(std::log(1 + std::exp(x))); };
  const Choice choice = choose(router, {-2, 4, 1});
  EXPECT_EQ(choice.experts, (Ids{1, 2}));
  const double sum = score(4) + score(1);
  expect_near(choice.weights, {1.5 * score(4) / sum, 1.5 * score(1) / sum});
  // e^1000 is no double, softplus(1000) is 1000.
  router.renormalise = false;
  EXPECT_NEAR(choose(router, {1000, 0, -1000}).weights[0], 1.5 * std::sqrt(1000.0), 1e-4);
}

TEST(Router, ASelectionBiasMovesTheChoiceAndNotTheWeights) {
  RouterConfig router = router_of(RouterScores::sigmoid, 4, 2);
  router.renormalise = false;
  router.selection_bias = {0, 0, -1, 1};
  const Choice choice = choose(router, {0, 1, 2, -2});
  EXPECT_EQ(choice.experts, (Ids{3, 1}));
  expect_near(choice.weights, {1 / (1 + std::exp(2)), 1 / (1 + std::exp(-1))});
}

TEST(Router, AGroupCountsByItsTwoBestAndMaskedGroupsAreNeverChosen) {
  RouterConfig router = router_of(RouterScores::sigmoid, 9, 3);
  router.groups = 3;
  router.top_groups = 1;
  // The best expert of all stands in group 0, the best pair in group 2.
  EXPECT_EQ(choose(router, {9, -9, -9, 0, 0, 0, 2, 1, -8}).experts, (Ids{6, 7, 8}));
  // Biases as low as scores of no other group: still none but that group's.
  router.selection_bias = {-5, -5, -5, -5, -5, -5, -4, -4, -90};
  EXPECT_EQ(choose(router, {9, 9, 9, 9, 9, 9, 2, 1, -8}).experts, (Ids{6, 7, 8}));
  router.top_groups = 2;
  router.selection_bias.clear();
  EXPECT_EQ(choose(router, {9, -9, -9, 3, 3, 3, 2, 1, -8}).experts, (Ids{3, 4, 5}));
}

TEST(Router, GroupsOfOneExpertCountByIt) {
  RouterConfig router = router_of(RouterScores::sigmoid, 3, 2);
  router.groups = 3;
  router.top_groups = 2;
  EXPECT_EQ(choose(router, {1, 0, 2}).experts, (Ids{2, 0}));
}

TEST(Router, TiesGoToTheLowerId) {
  for (RouterScores scores :
       {RouterScores::softmax, RouterScores::sigmoid, RouterScores::sqrt_softplus}) {
    EXPECT_EQ(choose(router_of(scores, 6, 4), {1, 1, 2, 1, 2, 1}).experts, (Ids{2, 4, 0, 1}));
    EXPECT_EQ(choose(router_of(scores, 6, 6), {0, 0, 0, 0, 0, 0}).experts, (Ids{0, 1, 2, 3, 4, 5}));
  }
  RouterConfig router = router_of(RouterScores::sigmoid, 8, 2);
  router.groups = 4;
  router.top_groups = 2;
  EXPECT_EQ(choose(router, std::vector<float>(8, 1)).experts, (Ids{0, 1}));
}

TEST(Router, AChoiceOfLogitsKeepsTheirOrderWhereASoftmaxUnderflows) {
  const Choice choice = choose(router_of(RouterScores::softmax, 4, 3), {-2000, 0, -1500, -1000});
  EXPECT_EQ(choice.experts, (Ids{1, 3, 2}));
  expect_near(choice.weights, {1, 0, 0});
  // Logits that differ by less than a softmax shows.
  EXPECT_EQ(choose(router_of(RouterScores::softmax, 3, 2), {1e-30f, 2e-30f, 0}).experts,
            (Ids{1, 0}));
}

TEST(Router, WeightsOfHugeLogitsAreNumbers) {
  for (const float size : {1e4f, 3e38f}) {
    const Choice choice = choose(router_of(RouterScores::softmax, 3, 2), {size, -size, size});
    EXPECT_EQ(choice.experts, (Ids{0, 2}));
    expect_near(choice.weights, {0.5, 0.5});
  }
}

TEST(Router, AZeroSumIsNotDividedBy) {
  RouterConfig router = router_of(RouterScores::sigmoid, 3, 2);
  expect_near(choose(router, {-3e38f, -3e38f, -3e38f}).weights, {0, 0});
  router.scores = RouterScores::sqrt_softplus;
  expect_near(choose(router, {-3e38f, -3e38f, -3e38f}).weights, {0, 0});
}

TEST(Router, NaNRanksBelowEveryNumberAndWeighsNothing) {
  for (RouterScores scores :
       {RouterScores::softmax, RouterScores::sigmoid, RouterScores::sqrt_softplus}) {
    const Choice choice = choose(router_of(scores, 4, 3), {kNaN, -50, kNaN, 1});
    EXPECT_EQ(choice.experts, (Ids{3, 1, 0}));
    EXPECT_EQ(choice.weights[2], 0.0f);
    const Choice none = choose(router_of(scores, 3, 2), {kNaN, kNaN, kNaN});
    EXPECT_EQ(none.experts, (Ids{0, 1}));
    EXPECT_EQ(none.weights, (std::vector<float>{0, 0}));
  }
}

/// "" if the ids are different and in range, else which is not.
std::string trouble(const RouterConfig& router, const Choice& choice) {
  std::set<std::int64_t> seen;
  for (std::int64_t id : choice.experts) {
    if (id < 0 || id >= router.experts) return "id " + std::to_string(id) + " is out of range";
    if (!seen.insert(id).second) return "id " + std::to_string(id) + " comes twice";
  }
  return "";
}

std::string text(const std::vector<float>& values) {
  std::string all;
  for (float value : values) all += std::to_string(value) + " ";
  return all;
}

TEST(Router, WhateverTheLogitsTheIdsAreDifferentAndInRange) {
  constexpr float kOdd[] = {0, -0.0f, 1, -1, kNaN, kInfinity, -kInfinity, 3e38f, -3e38f, 1e-40f};
  std::mt19937_64 random(29);
  for (int round = 0; round < 20000; ++round) {
    RouterConfig router = router_of(static_cast<RouterScores>(round % 3), 12, 1);
    router.groups = std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}[random() % 6];
    router.top_groups =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(router.groups)) + 1;
    const std::int64_t reachable = router.experts / router.groups * router.top_groups;
    router.top_k = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(reachable)) + 1;
    const auto any = [&] { return kOdd[random() % std::size(kOdd)]; };
    if (random() % 2 == 0) {
      for (int e = 0; e < 12; ++e) router.selection_bias.push_back(any());
    }
    std::vector<float> logits;
    for (int e = 0; e < 12; ++e) logits.push_back(any());
    const Choice choice = choose(router, logits);
    ASSERT_EQ(trouble(router, choice), "")
        << "logits " << text(logits) << "bias " << text(router.selection_bias);
    std::set<std::int64_t> groups;
    for (std::int64_t id : choice.experts) groups.insert(id / (router.experts / router.groups));
    ASSERT_LE(static_cast<std::int64_t>(groups.size()), router.top_groups) << text(logits);
  }
}

TEST(Router, GroupsWithANaNAndAnInfinityDoNotUpsetTheOrder) {
  RouterConfig router = router_of(RouterScores::sqrt_softplus, 6, 2);
  router.groups = 3;
  router.top_groups = 1;
  // Group 1 comes to infinity and a NaN: what it is worth is not known, so the others come first.
  EXPECT_EQ(choose(router, {1, 1, kInfinity, kNaN, 2, 2}).experts, (Ids{4, 5}));
}

RouterConfig small_router() {
  RouterConfig router = router_of(RouterScores::softmax, 3, 2);
  router.hidden = 2;
  router.weight = {1, 0, 0, 1, 1, 1};
  return router;
}

std::vector<BFloat16> as_bf16(const std::vector<float>& values) {
  std::vector<BFloat16> all;
  for (float value : values) all.push_back(to_bf16(value));
  return all;
}

TEST(Route, EachTokenGoesByItsOwnRowWithTheBiasAdded) {
  RouterConfig router = small_router();
  std::vector<std::int64_t> experts(4, -1);
  std::vector<float> weights(4, kNaN);
  route(router, as_bf16({1, -2, -1, 4}), experts, weights);  // logits 1 -2 -1; -1 4 3
  EXPECT_EQ(experts, (Ids{0, 2, 1, 2}));
  expect_near(weights, {1 / (1 + std::exp(-2)), 1 / (1 + std::exp(2)), 1 / (1 + std::exp(-1)),
                        1 / (1 + std::exp(1))});
  router.bias = {0, 10, 0};
  route(router, as_bf16({1, -2, -1, 4}), experts, weights);
  EXPECT_EQ(experts, (Ids{1, 0, 1, 2}));
}

TEST(Route, NoTokensAreNoWork) {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
  EXPECT_NO_THROW(route(small_router(), {}, experts, weights));
}

TEST(Route, ANaNInOneTokenStaysInThatToken) {
  std::vector<std::int64_t> experts(4, -1);
  std::vector<float> weights(4, kNaN);
  route(small_router(), as_bf16({kNaN, 1, -1, 4}), experts, weights);
  EXPECT_EQ(experts[2], 1);
  EXPECT_EQ(experts[3], 2);
  EXPECT_NEAR(weights[2] + weights[3], 1, 1e-6);
}

std::string error_of(const RouterConfig& router, std::size_t x, std::size_t slots) {
  std::vector<std::int64_t> experts(slots);
  std::vector<float> weights(slots);
  try {
    route(router, std::vector<BFloat16>(x), experts, weights);
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument ? error.what() : "another code";
  }
  return "no error";
}

void expect_error(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

TEST(Route, SizesThatDoNotFitAreRefused) {
  const auto changed = [](auto change) {
    RouterConfig router = small_router();
    change(router);
    return error_of(router, 4, 4);
  };
  expect_error(error_of(small_router(), 4, 4), "no error");
  expect_error(error_of(small_router(), 3, 2), "whole rows of 2");
  expect_error(error_of(small_router(), 4, 3), "2 tokens x 2 slots");
  expect_error(changed([](RouterConfig& r) { r.experts = 0; }), "at least one");
  expect_error(changed([](RouterConfig& r) { r.hidden = 0; }), "at least one");
  expect_error(changed([](RouterConfig& r) { r.hidden = -2; }), "at least one");
  expect_error(changed([](RouterConfig& r) { r.top_k = 0; }), "top_k is 0: 1 to 3");
  expect_error(changed([](RouterConfig& r) { r.top_k = 4; }), "top_k is 4: 1 to 3");
  expect_error(changed([](RouterConfig& r) { r.groups = 0; }), "groups must divide");
  expect_error(changed([](RouterConfig& r) { r.groups = 2; }), "groups must divide");
  expect_error(changed([](RouterConfig& r) { r.top_groups = 2; }), "hold the top ones");
  expect_error(changed([](RouterConfig& r) { r.top_groups = 0; }), "hold the top ones");
  expect_error(changed([](RouterConfig& r) { r.groups = 3; }), "top_k is 2: 1 to 1");
  expect_error(changed([](RouterConfig& r) { r.weight.pop_back(); }), "weight has 5 values: 3 x 2");
  expect_error(changed([](RouterConfig& r) { r.bias = {1}; }), "bias has 1 values: 3");
  expect_error(changed([](RouterConfig& r) { r.selection_bias = {1}; }), "selection bias has 1");
  expect_error(changed([](RouterConfig& r) { r.experts = r.hidden = std::int64_t{1} << 32; }),
               "weight has 6 values");
}

}  // namespace
}  // namespace megamoe
