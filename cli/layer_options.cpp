#include "cli/layer_options.hpp"

#include "base/check.hpp"
#include "base/names.hpp"
#include "cli/parsed_option.hpp"
#include "cli/text.hpp"

namespace megamoe::cli {
namespace {

ActivationFormat parse_activation_format(const std::string& text) {
  if (text == "bf16") return ActivationFormat::bf16;
  if (text == "fp8") return ActivationFormat::fp8;
  fail(ErrorCode::invalid_argument, "unknown format of activations '{}': bf16 or fp8 is wanted",
       text);
}

bool parse_binding(const std::string& text) {
  if (text == "yes") return true;
  if (text == "no") return false;
  fail(ErrorCode::invalid_argument, "'{}' does not say whether to bind: yes or no is wanted", text);
}

const char* const kSourceGroup = "Layer and input";

void add_sources(CLI::App& command, LayerRequest& layer) {
  const std::string group = kSourceGroup;
  command
      .add_option(
          "--checkpoint", layer.checkpoint,
          "Folder with config.json and model.safetensors; without it a layer is made from --seed")
      ->group(group);
  command.add_option("--layer", layer.layer, "Which layer of the checkpoint (default 0)")
      ->group(group);
  command
      .add_option(
          "--preset", layer.preset,
          "Shape of a layer from the seed: demo, deepseek-v3, deepseek-v4-flash, deepseek-v4-pro, "
          "qwen3-235b, gpt-oss-120b, mixtral-8x7b")
      ->group(group);
  add_parsed(command, "--hidden", layer.hidden, parse_count, "H, instead of the preset's")
      ->group(group);
  add_parsed(command, "--intermediate", layer.intermediate, parse_count, "I, likewise")
      ->group(group);
  add_parsed(command, "--experts", layer.experts, parse_count, "E, likewise")->group(group);
  add_parsed(command, "--top-k", layer.top_k, parse_count, "Slots per token, likewise")
      ->group(group);
  command.add_option("--seed", layer.seed, "Of weights, x and routes (default 1)")->group(group);
  add_parsed(command, "--activations", layer.activations, parse_activation_format,
             "bf16 or fp8: the format of x, which with the weights' format names the recipe")
      ->group(group);
  add_parsed(command, "--recipe", layer.recipe, parse_recipe,
             "fp8_fp4, fp8_fp8, bf16_bf16, bf16_fp4 or bf16_fp8, instead of --activations")
      ->group(group);
  command
      .add_flag_callback(
          "--no-shared-experts", [&layer] { layer.shared_experts = false; },
          "Leave the shared experts out")
      ->group(group);
}

void add_input(CLI::App& command, LayerRequest& layer) {
  const std::string group = kSourceGroup;
  command
      .add_option(
          "--input", layer.input,
          "Safetensors file with hidden_states [T, H]; its tokens are shared out over the ranks")
      ->group(group);
  add_parsed(command, "--tokens", layer.tokens, parse_count,
             "Tokens per rank, without --input (default 64)")
      ->group(group);
}

}  // namespace

std::shared_ptr<LayerOptionValues> add_layer_options(CLI::App& command) {
  auto values = add_sweep_options(command);
  add_input(command, values->layer);
  return values;
}

std::shared_ptr<LayerOptionValues> add_sweep_options(CLI::App& command) {
  auto values = std::make_shared<LayerOptionValues>();
  add_sources(command, values->layer);
  const std::string group = "Backend, ranks and workers";
  add_parsed(command, "--backend", values->backend, parse_backend,
             "auto, cpu or cuda (default auto: cuda where a device runs the layer)")
      ->group(group);
  add_parsed(
      command, "--ranks", values->ranks, parse_count,
      "Ranks of the group: processes, or threads with CUDA devices (default 4; under torchrun, "
      "mpirun or srun theirs)")
      ->group(group);
  add_parsed(command, "--workers", values->plan.workers, parse_count,
             "Per rank: threads (default: cores / ranks, at least 1), on cuda multiprocessors")
      ->group(group);
  add_parsed(command, "--k1-workers", values->plan.k1_workers, parse_count,
             "Split: threads for dispatch and GEMM 1, on cuda multiprocessors")
      ->group(group);
  add_parsed(command, "--k2-workers", values->plan.k2_workers, parse_count,
             "Split: threads for GEMM 2, on cuda multiprocessors")
      ->group(group);
  add_parsed(command, "--block-rows", values->plan.block_rows, parse_count,
             "BLOCK_M: 16, 32, 64, 96, 128 or 192; on cuda 16 to 176 in steps of 16")
      ->group(group);
  add_parsed(command, "--instruction-set", values->plan.instruction_set, parse_instruction_set,
             "scalar, avx2 or avx512 (default: the best there is)")
      ->group(group);
  add_parsed(command, "--bind", values->plan.bind_threads, parse_binding,
             "yes or no: keep a rank's threads on its part of the processors (default: on hosts of "
             "several NUMA nodes)")
      ->group(group);
  add_parsed(command, "--timeout", values->deadline, parse_seconds,
             "Seconds that any wait for another rank may take (default 30; 0 = for ever)")
      ->group(group);
  return values;
}

void add_rate_options(CLI::App& command, GivenRates& rates) {
  command
      .add_option("--bandwidth", rates.bytes_per_ns,
                  "Read bandwidth in GB/s, instead of a measurement of 0.2 s")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--gflops", rates.flops_per_ns,
                  "f32 rate in GFLOP/s, instead of a measurement of 0.2 s")
      ->check(CLI::PositiveNumber);
}

}  // namespace megamoe::cli
