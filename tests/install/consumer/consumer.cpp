// One layer of the checkpoint in argv[1], as a program outside the tree runs it.
#include <cstdio>
#include <exception>
#include <vector>

#include "megamoe/megamoe.hpp"

namespace {

int run(const char* directory) {
  megamoe::CheckpointLayer checkpoint = megamoe::load_layer(directory, 0);
  checkpoint.config.max_tokens = 4;
  megamoe::Layer layer(checkpoint.config, checkpoint.weights, megamoe::Group::single());
  const auto values = static_cast<std::size_t>(4 * checkpoint.config.hidden);
  const std::vector<megamoe::BFloat16> x(values, megamoe::BFloat16{0x3f80});
  std::vector<megamoe::BFloat16> y(values);
  megamoe::Batch batch = layer.batch(4);
  batch.x_bf16 = x;
  megamoe::route(checkpoint.router, x, batch.experts, batch.weights);
  layer.forward(batch, y);
  return layer.report().routes == 4 * checkpoint.config.top_k ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 2 ? run(argv[1]) : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
