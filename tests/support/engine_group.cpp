#include "support/engine_group.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "cpu/reference.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::test {

struct EngineGroup::Rank {
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<PackedWeights> weights;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Engine> engine;
};

namespace {

/// Runs work(rank) in one thread per rank; returns what each threw.
std::vector<std::exception_ptr> in_threads(int ranks, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace

void GroupResult::check() const {
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

std::string GroupResult::message(int rank) const {
  try {
    if (errors[static_cast<std::size_t>(rank)]) {
      std::rethrow_exception(errors[static_cast<std::size_t>(rank)]);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

EngineGroup::EngineGroup(const GroupSpec& spec)
    : spec_(spec),
      weights_(cli::synthetic_weights(spec.config, spec.seed, 0, spec.config.experts)),
      ranks_(static_cast<std::size_t>(spec.ranks)) {
  GroupOptions options;
  options.deadline = spec.deadline;
  auto communicators = make_thread_group(spec.ranks, options);
  PlanOverrides overrides = spec.plan;
  if (!overrides.workers) overrides.workers = 2;
  const auto errors = in_threads(spec.ranks, [&](int r) {
    auto rank = std::make_unique<Rank>();
    rank->communicator = std::move(communicators[static_cast<std::size_t>(r)]);
    const Plan plan = make_plan(spec_.config, spec.ranks,
                                {.cores = 2, .instruction_set = spec.instruction_set}, overrides);
    rank->weights = std::make_unique<PackedWeights>(plan.shape);
    rank->weights->pack(weights_, r);
    rank->arena = std::make_shared<Arena>(rank->communicator, plan.shape);
    EngineHook hook;
    if (spec_.hook) {
      hook = [this, r](EnginePhase phase, std::int64_t worker) { spec_.hook(r, phase, worker); };
    }
    rank->engine =
        std::make_unique<Engine>(plan, rank->arena, std::make_shared<WorkerPool>(plan.threads()),
                                 *rank->weights, 1, std::move(hook));
    ranks_[static_cast<std::size_t>(r)] = std::move(rank);
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  poison();
}

EngineGroup::~EngineGroup() = default;

Input EngineGroup::input(int rank, std::int64_t tokens, std::uint64_t call_seed) const {
  return cli::synthetic_input(spec_.config, spec_.seed + 1000 * call_seed, rank, tokens);
}

std::vector<Input> EngineGroup::inputs(const std::vector<std::int64_t>& tokens,
                                       std::uint64_t call_seed) const {
  std::vector<Input> all;
  for (int rank = 0; rank < ranks(); ++rank) {
    all.push_back(input(rank, tokens[static_cast<std::size_t>(rank)], call_seed));
  }
  return all;
}

std::string EngineGroup::compare_with_reference(const std::vector<Input>& inputs,
                                                const GroupResult& result) const {
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const double error = relative_l2(as_floats(result.y[rank]), reference(inputs[rank]));
    const double most = tolerance(spec_.config.recipe);
    if (!(error <= most))
      return fmt::format("rank {}: relative L2 {:.2e}, at most {:.0e}", rank, error, most);
  }
  return "";
}

GroupResult EngineGroup::call(const std::vector<Input>& inputs, Execution execution) {
  GroupResult result;
  const auto ranks = static_cast<std::size_t>(spec_.ranks);
  result.y.resize(ranks);
  result.reports.resize(ranks);
  result.errors = in_threads(spec_.ranks, [&](int r) {
    const auto at = static_cast<std::size_t>(r);
    const Input& input = inputs[at];
    Arena& arena = *ranks_[at]->arena;
    std::copy(input.experts.begin(), input.experts.end(),
              arena.mine<std::int64_t>(RegionId::expert_ids));
    std::copy(input.weights.begin(), input.weights.end(),
              arena.mine<float>(RegionId::expert_weights));
    // 0x5a5a: finite, so that a value that was never written does not pass for a NaN that was.
    result.y[at].assign(input.x.size(), BFloat16{0x5a5a});
    result.reports[at] = ranks_[at]->engine->forward(
        {.tokens = static_cast<std::int64_t>(input.x.size()) / spec_.config.hidden,
         .x_bf16 = input.x.data(),
         .y = result.y[at].data(),
         .execution = execution});
  });
  return result;
}

void EngineGroup::poison() {
  for (auto& rank : ranks_) {
    for (const Region& region : rank->arena->layout().regions) {
      if (region.kind == RegionKind::control) continue;
      std::memset(rank->arena->mine<std::byte>(region.id), 0xff,
                  static_cast<std::size_t>(region.bytes()));
    }
  }
}

std::vector<float> EngineGroup::reference(const Input& input) const {
  return reference_forward(spec_.config, weights_,
                           reference_x(spec_.config.recipe, spec_.config.hidden, input.x),
                           input.experts, input.weights);
}

Arena& EngineGroup::arena(int rank) {
  return *ranks_[static_cast<std::size_t>(rank)]->arena;
}

LayerConfig small_config(Recipe recipe) {
  LayerConfig config;
  config.hidden = 160;
  config.intermediate = 96;
  config.experts = 10;
  config.top_k = 3;
  config.max_tokens = 64;
  config.recipe = recipe;
  return config;
}

std::vector<float> as_floats(const std::vector<BFloat16>& values) {
  std::vector<float> floats;
  for (BFloat16 value : values) floats.push_back(to_float(value));
  return floats;
}

std::string difference(const std::vector<BFloat16>& a, const std::vector<BFloat16>& b,
                       std::int64_t hidden) {
  if (a.size() != b.size()) return fmt::format("{} values and {}", a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    return fmt::format("token {} feature {}: {} and {}", static_cast<std::int64_t>(i) / hidden,
                       static_cast<std::int64_t>(i) % hidden, to_float(a[i]), to_float(b[i]));
  }
  return "";
}

std::string difference(const GroupResult& a, const GroupResult& b, std::int64_t hidden) {
  for (std::size_t rank = 0; rank < a.y.size(); ++rank) {
    const std::string found = difference(a.y[rank], b.y[rank], hidden);
    if (!found.empty()) return fmt::format("rank {} {}", rank, found);
  }
  return "";
}

double tolerance(Recipe recipe) {
  return intermediate_format(recipe) == IntermediateFormat::bf16 ? 5e-3 : 1e-2;
}

}  // namespace megamoe::test
