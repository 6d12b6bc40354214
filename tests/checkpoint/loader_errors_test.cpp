// Models that are broken or not understood: each is an error that names what is wrong, none is run
// in silence.
#include <functional>

#include "checkpoint/model_folder.hpp"

namespace megamoe::test {
namespace {

using Edit = std::function<void(ModelFolder&)>;

void refused(const std::string& fixture, ErrorCode code, const std::vector<std::string>& parts,
             const Edit& edit, std::int64_t layer = 0) {
  ModelFolder model(fixture);
  edit(model);
  expect_error(code, parts, [&] { model.load(layer); });
}

Edit without(const std::string& tensor) {
  return [tensor](ModelFolder& model) { ASSERT_EQ(model.tensors.erase(tensor), 1u) << tensor; };
}

template <class Value>
Edit with(const std::string& key, const Value& value) {
  return [key, value](ModelFolder& model) { model.config[key] = value; };
}

Edit without_key(const std::string& key) {
  return [key](ModelFolder& model) { ASSERT_EQ(model.config.erase(key), 1u) << key; };
}

/// The same bytes under another type of the same width.
Edit retyped(const std::string& tensor, Dtype dtype) {
  return [tensor, dtype](ModelFolder& model) { model.tensors.at(tensor).dtype = dtype; };
}

Edit reshaped(const std::string& tensor, const std::vector<std::int64_t>& shape) {
  return [tensor, shape](ModelFolder& model) { model.tensors.at(tensor).shape = shape; };
}

Edit added(const std::string& tensor) {
  return [tensor](ModelFolder& model) {
    model.tensors[tensor] = make_tensor<float>(Dtype::f32, {1}, {1});
  };
}

const std::string kMixtral = "model.layers.0.block_sparse_moe.";
const std::string kMlp = "model.layers.0.mlp.";

TEST(LoaderErrors, MissingTensorsAreNamed) {
  const auto missing = [](const std::string& fixture, const std::string& tensor) {
    refused(fixture, ErrorCode::format, {"'" + tensor + "'", "model.safetensors"}, without(tensor));
  };
  missing("mixtral", kMixtral + "gate.weight");
  missing("mixtral", kMixtral + "experts.3.w2.weight");
  missing("qwen3_moe", kMlp + "gate.weight");
  missing("qwen3_moe", kMlp + "experts.11.up_proj.weight");
  missing("gpt_oss", kMlp + "router.weight");
  missing("gpt_oss", kMlp + "router.bias");
  missing("gpt_oss", kMlp + "experts.gate_up_proj_bias");
  missing("gpt_oss", kMlp + "experts.gate_up_proj_scales");
  missing("gpt_oss", kMlp + "experts.down_proj_blocks");
  missing("gpt_oss", kMlp + "experts.down_proj_bias");
  missing("deepseek_v3", kMlp + "gate.e_score_correction_bias");
  missing("deepseek_v3", kMlp + "experts.0.gate_proj.weight_scale_inv");
  missing("deepseek_v3", kMlp + "experts.15.down_proj.weight_scale_inv");
  missing("deepseek_v3", kMlp + "shared_experts.up_proj.weight");
  missing("deepseek_v3", kMlp + "shared_experts.up_proj.weight_scale_inv");
}

TEST(LoaderErrors, TensorsThatWouldBeIgnoredAreNamed) {
  const auto leftover = [](const std::string& fixture, const std::string& tensor) {
    refused(fixture, ErrorCode::format, {tensor, "not understood"}, added(tensor));
  };
  leftover("mixtral", kMixtral + "experts.0.w1.bias");
  leftover("mixtral", kMixtral + "experts.4.w1.weight");
  leftover("mixtral", kMixtral + "gate.e_score_correction_bias");
  leftover("mixtral", kMixtral + "experts.0.w1.weight_scale_inv");
  leftover("qwen3_moe", kMlp + "shared_expert_gate.weight");
  leftover("gpt_oss", kMlp + "experts.gate_up_proj_zero_points");
  leftover("deepseek_v3", kMlp + "experts.0.up_proj.weight_zero_point");
  refused("deepseek_v3", ErrorCode::format, {"shared_experts", "not understood"},
          with("n_shared_experts", 0));
}

TEST(LoaderErrors, StaticScalesOfActivationsAndOtherLayersAreNoneOfItsBusiness) {
  ModelFolder model("mixtral");
  added(kMixtral + "experts.0.w1.input_scale")(model);
  added(kMixtral + "experts.0.w1.input_global_scale")(model);
  added("model.layers.0.self_attn.q_proj.bias")(model);
  added("model.layers.01.block_sparse_moe.gate.bias")(model);
  EXPECT_EQ(model.load().weights.experts.size(), 4u);
}

TEST(LoaderErrors, WrongTypesAreNamed) {
  const std::string w1 = kMixtral + "experts.1.w1.weight";
  refused("mixtral", ErrorCode::unsupported, {w1, "is F16", "BF16"}, retyped(w1, Dtype::f16));
  refused("mixtral", ErrorCode::format, {w1, "is I16"}, retyped(w1, Dtype::i16));
  refused("mixtral", ErrorCode::unsupported, {w1, "is F32"}, [&](ModelFolder& model) {
    Tensor& tensor = model.tensors.at(w1);
    tensor.dtype = Dtype::f32;
    tensor.bytes.resize(2 * tensor.bytes.size());
  });
  refused("mixtral", ErrorCode::format, {"gate.weight", "is I16", "BF16, F16 or F32"},
          retyped(kMixtral + "gate.weight", Dtype::i16));
  const std::string scale = kMlp + "experts.2.up_proj.weight_scale_inv";
  refused("deepseek_v3", ErrorCode::format, {scale, "is I32", "F32 is wanted"},
          retyped(scale, Dtype::i32));
  const std::string weight = kMlp + "experts.2.up_proj.weight";
  refused("deepseek_v3", ErrorCode::format, {weight, "is F8_E5M2"},
          retyped(weight, Dtype::f8_e5m2));
  const std::string blocks = kMlp + "experts.gate_up_proj_blocks";
  refused("gpt_oss", ErrorCode::format, {blocks, "is I8", "U8 is wanted"},
          retyped(blocks, Dtype::i8));
  const std::string scales = kMlp + "experts.down_proj_scales";
  refused("gpt_oss", ErrorCode::format, {scales, "is F8_E8M0", "U8 is wanted"},
          retyped(scales, Dtype::f8_e8m0));
}

TEST(LoaderErrors, WrongShapesAreNamedWithWantedAndGot) {
  refused("mixtral", ErrorCode::format, {"experts.0.w1.weight", "[128, 160]", "[160, 128]"},
          reshaped(kMixtral + "experts.0.w1.weight", {128, 160}));
  refused("mixtral", ErrorCode::format, {"gate.weight", "[128, 4]", "[4, 128]"},
          reshaped(kMixtral + "gate.weight", {128, 4}));
  refused("deepseek_v3", ErrorCode::format,
          {"experts.0.gate_proj.weight_scale_inv", "[4]", "[2, 2]"},
          reshaped(kMlp + "experts.0.gate_proj.weight_scale_inv", {4}));
  refused("gpt_oss", ErrorCode::format,
          {"experts.gate_up_proj_blocks", "[8, 256, 80]", "[8, 256, 5, 16]"},
          reshaped(kMlp + "experts.gate_up_proj_blocks", {8, 256, 80}));
  refused("mixtral", ErrorCode::format, {"experts.0.w1.weight", "[160, 128]", "[161, 128]"},
          with("intermediate_size", 161));
}

TEST(LoaderErrors, AnExpertStoredOtherwiseThanTheRestIsNamed) {
  refused("deepseek_v3", ErrorCode::unsupported, {"experts.5", "another format"},
          [](ModelFolder& model) {
            for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
              const std::string base = kMlp + "experts.5." + name;
              Tensor& tensor = model.tensors.at(base + ".weight");
              tensor.dtype = Dtype::bf16;
              tensor.bytes.resize(2 * tensor.bytes.size());
              model.tensors.erase(base + ".weight_scale_inv");
            }
          });
}

TEST(LoaderErrors, UnknownFamiliesAreRefusedWithAListOfKnownOnes) {
  refused("mixtral", ErrorCode::unsupported,
          {"config.json", "model_type", "'llama'", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3",
           "deepseek_v4"},
          with("model_type", "llama"));
  refused("mixtral", ErrorCode::format, {"config.json", "model_type"}, without_key("model_type"));
}

TEST(LoaderErrors, ArithmeticThatIsNotUnderstoodIsRefused) {
  for (const char* fixture : {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"}) {
    refused(fixture, ErrorCode::unsupported, {"hidden_act", "'gelu'", "'silu'"},
            with("hidden_act", "gelu"));
  }
  refused("deepseek_v3", ErrorCode::unsupported, {"scoring_func", "'softmax'", "'sigmoid'"},
          with("scoring_func", "softmax"));
  refused("deepseek_v3", ErrorCode::unsupported, {"topk_method", "'greedy'", "'noaux_tc'"},
          with("topk_method", "greedy"));
}

TEST(LoaderErrors, QuantisationsThatAreNotUnderstoodAreRefused) {
  using Json = nlohmann::json;
  const auto quantised = [](const Json& section) { return with("quantization_config", section); };
  refused("mixtral", ErrorCode::unsupported, {"quant_method", "'awq'", "compressed-tensors"},
          quantised({{"quant_method", "awq"}}));
  refused("mixtral", ErrorCode::format, {"quantization_config", "quant_method"},
          quantised({{"bits", 4}}));
  refused("mixtral", ErrorCode::format, {"quantization_config", "an object"},
          quantised(Json::array()));
  refused("deepseek_v3", ErrorCode::unsupported, {"weight_block_size", "64, 64", "128, 128"},
          quantised({{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}));
  refused("deepseek_v3", ErrorCode::unsupported, {"fmt", "'e5m2'", "'e4m3'"},
          quantised({{"quant_method", "fp8"}, {"fmt", "e5m2"}}));
  refused("deepseek_v3", ErrorCode::unsupported, {"activation_scheme", "'static'", "'dynamic'"},
          quantised({{"quant_method", "fp8"}, {"activation_scheme", "static"}}));
  refused("mixtral", ErrorCode::unsupported, {"format", "'pack-quantized'"},
          quantised({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}));
  refused("mixtral", ErrorCode::unsupported, {"quant_algo", "'FP8'", "'NVFP4'"},
          quantised({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}));
}

TEST(LoaderErrors, KeysThatTheArithmeticNeedsAreNotGuessed) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_local_experts",
                          "num_experts_per_tok", "num_hidden_layers"}) {
    refused("mixtral", ErrorCode::format, {"config.json", key}, without_key(key));
  }
  for (const char* key : {"moe_intermediate_size", "norm_topk_prob"}) {
    refused("qwen3_moe", ErrorCode::format, {"config.json", key}, without_key(key));
  }
  for (const char* key :
       {"norm_topk_prob", "routed_scaling_factor", "n_group", "topk_group", "n_routed_experts"}) {
    refused("deepseek_v3", ErrorCode::format, {"config.json", key}, without_key(key));
  }
}

TEST(LoaderErrors, ValuesOfTheWrongTypeOrRangeAreNamed) {
  for (const nlohmann::json& value :
       {nlohmann::json("128"), nlohmann::json(128.0), nlohmann::json(0), nlohmann::json(-1),
        nlohmann::json(std::int64_t{1} << 31), nlohmann::json(UINT64_MAX), nlohmann::json(true)}) {
    refused("mixtral", ErrorCode::format, {"config.json", "hidden_size", value.dump()},
            with("hidden_size", value));
  }
  refused("mixtral", ErrorCode::format, {"hidden_act"}, with("hidden_act", 3));
  refused("qwen3_moe", ErrorCode::format, {"norm_topk_prob", "true or false"},
          with("norm_topk_prob", 1));
  refused("qwen3_moe", ErrorCode::format, {"mlp_only_layers", "a list"},
          with("mlp_only_layers", 1));
  for (const nlohmann::json& value :
       {nlohmann::json("2.5"), nlohmann::json(-1), nlohmann::json(1e300)}) {
    refused("deepseek_v3", ErrorCode::format, {"routed_scaling_factor"},
            with("routed_scaling_factor", value));
    refused("gpt_oss", ErrorCode::format, {"swiglu_limit"}, with("swiglu_limit", value));
  }
  refused("gpt_oss", ErrorCode::unsupported, {"swiglu_limit"}, with("swiglu_limit", 0));
  refused("mixtral", ErrorCode::format, {"num_experts_per_tok is 5", "4 experts"},
          with("num_experts_per_tok", 5));
  refused("deepseek_v3", ErrorCode::format, {"n_group 3"}, with("n_group", 3));
  refused("deepseek_v3", ErrorCode::format, {"topk_group 5"}, with("topk_group", 5));
  refused("deepseek_v3", ErrorCode::format, {"n_group 16", "topk_group 2"}, with("n_group", 16));
}

TEST(LoaderErrors, LayersThatAreNotThereOrDenseAreNamed) {
  refused(
      "mixtral", ErrorCode::invalid_argument, {"layer 1", "0 to 0"}, [](ModelFolder&) {}, 1);
  refused(
      "mixtral", ErrorCode::invalid_argument, {"layer -1", "0 to 0"}, [](ModelFolder&) {}, -1);
  refused("deepseek_v3", ErrorCode::unsupported, {"first_k_dense_replace", "layer 0 is dense"},
          with("first_k_dense_replace", 1));
  refused("deepseek_v3", ErrorCode::unsupported, {"moe_layer_freq", "layer 0 is dense"},
          with("moe_layer_freq", 0));
  refused("qwen3_moe", ErrorCode::unsupported, {"mlp_only_layers", "layer 0 is dense"},
          with("mlp_only_layers", std::vector<int>{3, 0}));
  refused("qwen3_moe", ErrorCode::unsupported, {"decoder_sparse_step", "layer 0 is dense"},
          with("decoder_sparse_step", 2));
}

TEST(LoaderErrors, GptOssNeedsSizesThatGroupsOf32Divide) {
  refused("gpt_oss", ErrorCode::format, {"gate_up_proj", "161 columns", "multiple of 32"},
          [](ModelFolder& model) {
            model.config["hidden_size"] = 161;
            model.tensors.at(kMlp + "router.weight") =
                make_tensor(Dtype::f32, {8, 161}, std::vector<float>(8 * 161));
          });
}

TEST(LoaderErrors, SharedExpertsThatBlocksOfScalesDoNotSeparateAreRefused) {
  refused("deepseek_v3", ErrorCode::unsupported,
          {"shared_experts", "2 shared experts of 144", "128"}, [](ModelFolder& model) {
            model.config["n_shared_experts"] = 2;
            const auto fp8 = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
              const std::string base = kMlp + "shared_experts." + name;
              const std::int64_t down = (rows + 127) / 128;
              const std::int64_t across = (columns + 127) / 128;
              model.tensors[base + ".weight"] =
                  make_tensor(Dtype::f8_e4m3, {rows, columns},
                              std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns)));
              model.tensors[base + ".weight_scale_inv"] =
                  make_tensor(Dtype::f32, {down, across},
                              std::vector<float>(static_cast<std::size_t>(down * across), 1));
            };
            fp8("gate_proj", 288, 192);
            fp8("up_proj", 288, 192);
            fp8("down_proj", 192, 288);
          });
}

TEST(LoaderErrors, AConfigurationThatIsNoneIsRefused) {
  const ModelFolder model("mixtral");
  expect_error(ErrorCode::io, {"config.json"}, [&] { load_layer(model.folder().path(), 0); });
  model.write();
  const auto replaced = [&](const std::string& text, const std::vector<std::string>& parts) {
    write_text(model.folder() / "config.json", text);
    expect_error(ErrorCode::format, parts, [&] { load_layer(model.folder().path(), 0); });
  };
  replaced("", {"config.json"});
  replaced("[]", {"config.json", "no JSON object"});
  replaced("{\"model_type\":\"mixtral\"", {"config.json", "no JSON"});
  replaced("{\"model_type\":\"\xff\"}", {"config.json", "no JSON"});
  replaced("{\"model_type\":\"mixtral\",\"model_type\":\"gpt_oss\"}", {"'model_type' twice"});
  for (const std::size_t depth : {100, 3'000'000}) {
    replaced("{\"model_type\":" + std::string(depth, '[') + std::string(depth, ']') + "}",
             {"config.json", "nested"});
  }
  replaced("{\"model_type\":" + std::string(60, '[') + std::string(60, ']') + "}", {"model_type"});
}

}  // namespace
}  // namespace megamoe::test
