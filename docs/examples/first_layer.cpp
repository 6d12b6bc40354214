// Runs layer 0 of a checkpoint folder on four ranks, which are threads of this process.
#include <cstdio>
#include <future>
#include <vector>

#include <megamoe/megamoe.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: first_layer CHECKPOINT_FOLDER\n");
    return 2;
  }
  constexpr std::int64_t kTokens = 8;  // of each rank
  megamoe::CheckpointLayer checkpoint = megamoe::load_layer(argv[1], 0);
  checkpoint.config.max_tokens = kTokens;

  std::vector<std::future<std::int64_t>> ranks;
  for (const megamoe::Group& group : megamoe::Group::threads(4)) {
    ranks.push_back(std::async(std::launch::async, [&checkpoint, group] {
      // Validates, plans, and packs the experts that this rank owns.
      megamoe::Layer layer(checkpoint.config, checkpoint.weights, group);

      // The hidden states: bf16 [tokens, hidden]; here all ones.
      const auto values = static_cast<std::size_t>(kTokens * layer.config().hidden);
      const std::vector<megamoe::BFloat16> x(values, megamoe::BFloat16{0x3f80});
      std::vector<megamoe::BFloat16> y(values);

      megamoe::Batch batch = layer.batch(kTokens);
      batch.x_bf16 = x;
      megamoe::route(checkpoint.router, x, batch.experts, batch.weights);
      layer.forward(batch, y);
      return layer.report().routes;
    }));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::printf("rank %zu ran %lld routes\n", rank, static_cast<long long>(ranks[rank].get()));
  }
  return 0;
} catch (const megamoe::Error& error) {
  std::fprintf(stderr, "first_layer: %s\n", error.what());
  return 1;
}
