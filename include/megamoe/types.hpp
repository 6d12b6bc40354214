// The vocabulary of the public interface: formats, recipes, and the shape of a layer.
#pragma once

#include <cstdint>
#include <optional>

namespace megamoe {

/// bfloat16 storage: the upper half of an IEEE binary32.
struct BFloat16 {
  std::uint16_t bits;
  friend constexpr bool operator==(BFloat16, BFloat16) = default;
};

/// How one weight matrix is stored.
enum class WeightFormat {
  bf16,  ///< two bytes per value, no scales
  fp4,   ///< E2M1, two per byte, even column in the low nibble; scales: UE8M0, one byte per row and
         ///< 32 columns
  fp8,   ///< E4M3, one byte per value; scales: f32, one per block of 128 rows and 128 columns, a
         ///< multiplier
};

/// How numbers are stored and multiplied. "x_weights": the format of the activations, then of W1
/// and W2.
///
/// | recipe      | x                  | W1, W2                    | between the GEMMs   |
/// |-------------|--------------------|---------------------------|---------------------|
/// | `fp8_fp4`   | E4M3, UE8M0 per 32 | E2M1, UE8M0 per row and 32 | E4M3, UE8M0 per 128 |
/// | `fp8_fp8`   | E4M3, f32 per 128  | E4M3, f32 per 128 x 128   | E4M3, UE8M0 per 128 |
/// | `bf16_bf16` | bf16               | bf16                      | bf16                |
/// | `bf16_fp4`  | bf16               | as fp8_fp4                | bf16                |
/// | `bf16_fp8`  | bf16               | as fp8_fp8                | bf16                |
enum class Recipe { fp8_fp4, fp8_fp8, bf16_bf16, bf16_fp4, bf16_fp8 };

/// `swiglu`: silu(gate) * up; with a limit c first gate = min(gate, c), up = clamp(up, -c, c).
/// `swiglu_oai`: (up + 1) * gate * sigmoid(1.702 gate), clamped the same way (limit 7 unless
/// another is given).
enum class Activation { swiglu, swiglu_oai };

/// Three ways to run the same layer with the same bits.
/// `fused`: every worker does every kind of task. `split`: dispatch and GEMM 1 on one set of
/// workers, GEMM 2 on a disjoint one, at once, then the reduce. `staged`: those three, one after
/// another, on all workers.
enum class Execution { fused, split, staged };

/// Where a layer runs. `automatic`: on CUDA where a device is there that runs the layer, else on
/// the CPU (see choose_backend in backend.hpp).
enum class Backend { automatic, cpu, cuda };

/// The vector instructions of the CPU kernels. Chosen once per process from what the machine has.
enum class InstructionSet { scalar, avx2, avx512 };

/// The shape and arithmetic of one layer, equal on all ranks of a group.
struct LayerConfig {
  std::int64_t hidden = 0;          ///< H: features of a token
  std::int64_t intermediate = 0;    ///< I: features between the GEMMs; W1 is [2I, H], W2 is [H, I]
  std::int64_t experts = 0;         ///< E: routed experts over all ranks
  std::int64_t shared_experts = 0;  ///< experts that every token of the rank visits with weight 1
  std::int64_t top_k = 0;           ///< K: slots in a token's list, 1 to 32
  std::int64_t max_tokens = 0;      ///< capacity: tokens per rank and call
  Recipe recipe = Recipe::fp8_fp4;
  Activation activation = Activation::swiglu;
  std::optional<float> activation_limit;  ///< the clamp; swiglu_oai uses 7 when absent
  /// W1 and W2 of the shared experts; absent: as the recipe's. The activations are the recipe's.
  std::optional<WeightFormat> shared_weights;
};

}  // namespace megamoe
