// Models that tests write in every quantisation, and what each of their numbers is by the format's
// definition, decoded here by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/model_folder.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::test {

inline double e2m1(unsigned nibble) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (nibble & 8) != 0 ? -kValues[nibble & 7] : kValues[nibble & 7];
}

inline double e4m3(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15);
  const int mantissa = static_cast<int>(byte & 7);
  if ((byte & 0x7f) == 0x7f) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

inline double ue8m0(unsigned byte) {
  return byte == 255 ? NAN : std::ldexp(1.0, static_cast<int>(byte) - 127);
}

/// Adds tensors of a linear layer [rows, columns] and gives back what its numbers are.
using Numbers = std::function<double(std::int64_t row, std::int64_t column)>;
using Encoding = std::function<Numbers(Tensors&, const std::string& base, std::int64_t rows,
                                       std::int64_t columns)>;

class Bytes {
 public:
  Bytes(std::int64_t rows, std::int64_t columns, unsigned most, std::uint64_t seed)
      : columns_(columns) {
    std::mt19937_64 random(seed);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      values_.push_back(static_cast<std::uint8_t>(random() % (most + 1)));
    }
  }
  unsigned at(std::int64_t row, std::int64_t column) const {
    return values_[static_cast<std::size_t>(row * columns_ + column)];
  }
  std::uint8_t& operator[](std::size_t i) { return values_[i]; }
  const std::vector<std::uint8_t>& all() const { return values_; }

 private:
  std::int64_t columns_;
  std::vector<std::uint8_t> values_;
};

inline std::uint64_t seed_of(const std::string& base) {
  std::uint64_t seed = 17;
  for (char c : base) seed = seed * 131 + static_cast<unsigned char>(c);
  return seed;
}

inline unsigned nibble(const Bytes& packed, std::int64_t row, std::int64_t column) {
  const unsigned pair = packed.at(row, column / 2);
  return column % 2 == 0 ? pair & 15 : pair >> 4;  // the even element is the low one
}

/// E2M1 with UE8M0 per 32, the names and types as given. Scales take every byte there is.
inline Encoding mxfp4(const char* values, Dtype value_type, const char* scales, Dtype scale_type) {
  return [=](Tensors& tensors, const std::string& base, std::int64_t rows, std::int64_t columns) {
    const Bytes packed(rows, columns / 2, 255, seed_of(base));
    Bytes scale(rows, columns / 32, 255, seed_of(base) + 1);
    scale[0] = 0;
    scale[1] = 255;
    tensors[base + values] = make_tensor(value_type, {rows, columns / 2}, packed.all());
    tensors[base + scales] = make_tensor(scale_type, {rows, columns / 32}, scale.all());
    return [=](std::int64_t r, std::int64_t c) {
      return e2m1(nibble(packed, r, c)) * ue8m0(scale.at(r, c / 32));
    };
  };
}

inline Numbers fp8_inverse(Tensors& tensors, const std::string& base, std::int64_t rows,
                           std::int64_t columns) {
  const std::int64_t down = (rows + 127) / 128;
  const std::int64_t across = (columns + 127) / 128;
  const Bytes bytes(rows, columns, 255, seed_of(base));
  std::vector<float> scales;
  for (std::int64_t i = 0; i < down * across; ++i)
    scales.push_back(0.37f * static_cast<float>(i + 1));
  tensors[base + ".weight"] = make_tensor(Dtype::f8_e4m3, {rows, columns}, bytes.all());
  tensors[base + ".weight_scale_inv"] = make_tensor(Dtype::f32, {down, across}, scales);
  return [=](std::int64_t r, std::int64_t c) {
    return e4m3(bytes.at(r, c)) * scales[static_cast<std::size_t>(r / 128 * across + c / 128)];
  };
}

inline Numbers fp8_exponents(Tensors& tensors, const std::string& base, std::int64_t rows,
                             std::int64_t columns) {
  const std::int64_t down = (rows + 127) / 128;
  const std::int64_t across = (columns + 127) / 128;
  const Bytes bytes(rows, columns, 255, seed_of(base));
  Bytes scales(down, across, 254, seed_of(base) + 1);
  scales[0] = 0;
  tensors[base + ".weight"] = make_tensor(Dtype::f8_e4m3, {rows, columns}, bytes.all());
  tensors[base + ".scale"] = make_tensor(Dtype::f8_e8m0, {down, across}, scales.all());
  return [=](std::int64_t r, std::int64_t c) {
    return e4m3(bytes.at(r, c)) * ue8m0(scales.at(r / 128, c / 128));
  };
}

inline double as_bf16(double value) {
  return to_float(to_bf16(static_cast<float>(value)));
}

inline Numbers nvfp4(Tensors& tensors, const std::string& base, const std::string& values,
                     std::int64_t rows, std::int64_t columns, double factor) {
  const Bytes packed(rows, columns / 2, 255, seed_of(base));
  const Bytes scale(rows, columns / 16, 0x7e, seed_of(base) + 1);
  tensors[base + values] = make_tensor(Dtype::u8, {rows, columns / 2}, packed.all());
  tensors[base + ".weight_scale"] = make_tensor(Dtype::f8_e4m3, {rows, columns / 16}, scale.all());
  return [=](std::int64_t r, std::int64_t c) {
    return as_bf16(e2m1(nibble(packed, r, c)) * e4m3(scale.at(r, c / 16)) * factor);
  };
}

inline constexpr float kSecond = 0.0123f;

inline Numbers modelopt(Tensors& tensors, const std::string& base, std::int64_t rows,
                        std::int64_t columns) {
  tensors[base + ".weight_scale_2"] = make_tensor<float>(Dtype::f32, {}, {kSecond});
  return nvfp4(tensors, base, ".weight", rows, columns, kSecond);
}

inline Numbers compressed_nvfp4(Tensors& tensors, const std::string& base, std::int64_t rows,
                                std::int64_t columns) {
  tensors[base + ".weight_global_scale"] = make_tensor<float>(Dtype::f32, {1}, {kSecond});
  return nvfp4(tensors, base, ".weight_packed", rows, columns, 1.0 / kSecond);
}

inline Numbers bf16(Tensors& tensors, const std::string& base, std::int64_t rows,
                    std::int64_t columns) {
  std::mt19937_64 random(seed_of(base));
  std::vector<std::uint16_t> bits;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    bits.push_back(static_cast<std::uint16_t>(random() % 0x7f80));
  }
  tensors[base + ".weight"] = make_tensor(Dtype::bf16, {rows, columns}, bits);
  return [=](std::int64_t r, std::int64_t c) {
    const unsigned value = bits[static_cast<std::size_t>(r * columns + c)];
    const int exponent = static_cast<int>(value >> 7);
    return exponent == 0 ? std::ldexp(value & 127, -133)
                         : std::ldexp(128 + (value & 127), exponent - 134);
  };
}

inline constexpr std::int64_t kHidden = 192;
inline constexpr std::int64_t kIntermediate = 160;
inline constexpr std::int64_t kExperts = 3;

struct Expected {
  Numbers gate;
  Numbers up;
  Numbers down;
};

/// A model of one layer, and what its experts are to be.
struct Model {
  ModelFolder folder;
  std::vector<Expected> experts;
  std::vector<Expected> shared;
};

inline void add_router(Model& model, const std::string& name) {
  model.folder.tensors[name] =
      make_tensor(Dtype::f32, {kExperts, kHidden},
                  std::vector<float>(static_cast<std::size_t>(kExperts * kHidden)));
}

/// Names of an expert's three linear layers in the order gate, up, down.
using Names = std::vector<std::string>;
inline const Names kLong = {"gate_proj", "up_proj", "down_proj"};
inline const Names kShort = {"w1", "w3", "w2"};

inline Expected add_expert(Tensors& tensors, const std::string& base, const Names& names,
                           const Encoding& encode, std::int64_t intermediate) {
  return {encode(tensors, base + names[0], intermediate, kHidden),
          encode(tensors, base + names[1], intermediate, kHidden),
          encode(tensors, base + names[2], kHidden, intermediate)};
}

inline void make_experts(Model& model, const std::string& prefix, const Names& names,
                         const Encoding& encode) {
  for (std::int64_t e = 0; e < kExperts; ++e) {
    model.experts.push_back(add_expert(model.folder.tensors, prefix + std::to_string(e) + ".",
                                       names, encode, kIntermediate));
  }
}

inline void make_qwen3(Model& model, const Encoding& encode) {
  model.folder.config = {{"model_type", "qwen3_moe"}, {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},    {"moe_intermediate_size", kIntermediate},
                         {"num_experts", kExperts},   {"num_experts_per_tok", 2},
                         {"norm_topk_prob", true}};
  add_router(model, "model.layers.0.mlp.gate.weight");
  make_experts(model, "model.layers.0.mlp.experts.", kLong, encode);
}

inline void make_mixtral(Model& model, const Encoding& encode) {
  model.folder.config = {{"model_type", "mixtral"},       {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},        {"intermediate_size", kIntermediate},
                         {"num_local_experts", kExperts}, {"num_experts_per_tok", 2}};
  add_router(model, "model.layers.0.block_sparse_moe.gate.weight");
  make_experts(model, "model.layers.0.block_sparse_moe.experts.", kShort, encode);
}

/// Shared experts stand side by side in one MLP.
inline void make_deepseek_v3(Model& model, const Encoding& encode, std::int64_t shared) {
  model.folder.config = {{"model_type", "deepseek_v3"},
                         {"num_hidden_layers", 1},
                         {"hidden_size", kHidden},
                         {"moe_intermediate_size", kIntermediate},
                         {"n_routed_experts", kExperts},
                         {"n_shared_experts", shared},
                         {"num_experts_per_tok", 2},
                         {"norm_topk_prob", true},
                         {"routed_scaling_factor", 2.5},
                         {"n_group", 1},
                         {"topk_group", 1}};
  const std::string prefix = "model.layers.0.mlp.";
  add_router(model, prefix + "gate.weight");
  model.folder.tensors[prefix + "gate.e_score_correction_bias"] =
      make_tensor<float>(Dtype::f32, {kExperts}, {1, 2, 3});
  make_experts(model, prefix + "experts.", kLong, encode);
  const Expected all = add_expert(model.folder.tensors, prefix + "shared_experts.", kLong, encode,
                                  shared * kIntermediate);
  for (std::int64_t s = 0; s < shared; ++s) {
    const std::int64_t first = s * kIntermediate;
    model.shared.push_back(
        {[=](std::int64_t r, std::int64_t c) { return all.gate(first + r, c); },
         [=](std::int64_t r, std::int64_t c) { return all.up(first + r, c); },
         [=](std::int64_t r, std::int64_t c) { return all.down(r, first + c); }});
  }
}

inline void make_deepseek_v4(Model& model, const Encoding& routed, const Encoding& shared) {
  model.folder.config = {
      {"model_type", "deepseek_v4"},
      {"num_hidden_layers", 2},
      {"hidden_size", kHidden},
      {"moe_intermediate_size", kIntermediate},
      {"n_routed_experts", kExperts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", 2},
      {"routed_scaling_factor", 1.5},
      {"scoring_func", "sqrtsoftplus"},
      {"num_hash_layers", 1},
      {"swiglu_limit", 10.0},
      {"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}};
  add_router(model, "layers.1.ffn.gate.weight");
  model.folder.tensors["layers.1.ffn.gate.bias"] =
      make_tensor<float>(Dtype::f32, {kExperts}, {1, 2, 3});
  model.folder.tensors["layers.0.ffn.gate.tid2eid"] =
      make_tensor<std::int32_t>(Dtype::i32, {2, 2}, {0, 1, 1, 2});
  make_experts(model, "layers.1.ffn.experts.", kShort, routed);
  model.shared.push_back(add_expert(model.folder.tensors, "layers.1.ffn.shared_experts.", kShort,
                                    shared, kIntermediate));
}

inline const Encoding kCompressedMxfp4 =
    mxfp4(".weight_packed", Dtype::u8, ".weight_scale", Dtype::u8);
inline const Encoding kV4Fp4 = mxfp4(".weight", Dtype::i8, ".scale", Dtype::f8_e8m0);

}  // namespace megamoe::test
