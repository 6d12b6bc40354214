// What a folder may hold beside what the loader understands: keys that would change the layer, and
// files that are none.
#include <csignal>

#include <sys/resource.h>
#include <sys/stat.h>

#include "checkpoint/model_folder.hpp"
#include "checkpoint/tensor_set.hpp"
#include "layout/weight_matrix.hpp"

namespace megamoe::test {
namespace {

void refused_with(const std::string& fixture, const std::string& key, const nlohmann::json& value) {
  ModelFolder model(fixture);
  model.config[key] = value;
  expect_error(ErrorCode::unsupported, {"config.json", key}, [&] { model.load(); });
}

TEST(Unheard, KeysThatWouldChangeTheLayerOfAnotherFamilyAreRefused) {
  for (const char* fixture : {"mixtral", "qwen3_moe", "deepseek_v3"})
    refused_with(fixture, "swiglu_limit", 7.0);
  refused_with("mixtral", "routed_scaling_factor", 2.5);
  refused_with("mixtral", "norm_topk_prob", false);
  refused_with("qwen3_moe", "n_shared_experts", 1);
  refused_with("qwen3_moe", "shared_expert_intermediate_size", 96);
  refused_with("qwen3_moe", "scoring_func", "sigmoid");
  refused_with("gpt_oss", "swiglu_alpha", 1.5);
  refused_with("deepseek_v3", "num_hash_layers", 1);
}

TEST(Unheard, KeysThatSayNothingArePassedOver) {
  ModelFolder model("qwen3_moe");
  model.config["shared_expert_intermediate_size"] = 0;
  model.config["swiglu_limit"] = nullptr;
  model.config["attention_bias"] = true;
  EXPECT_EQ(model.load().weights.experts.size(), 12u);
}

TEST(Unheard, WeightsBehindATransformAreRefused) {
  ModelFolder model("mixtral");
  model.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                         {"transform_config", nlohmann::json::object()}};
  EXPECT_EQ(model.load().weights.experts.size(), 4u);
  model.config["quantization_config"]["transform_config"] = {{"config_groups", {{"R1", 1}}}};
  expect_error(ErrorCode::unsupported, {"quantization_config", "transform_config"},
               [&] { model.load(); });
}

TEST(Unheard, Bf16ScalesOfBlocksAreWidenedExactly) {
  const CheckpointLayer f32 = ModelFolder("deepseek_v3").load();
  ModelFolder model("deepseek_v3");
  const std::string name = "model.layers.0.mlp.experts.3.down_proj.weight_scale_inv";
  model.tensors.at(name) =
      make_tensor<std::uint16_t>(Dtype::bf16, {2, 2}, {0x3f80, 0x4000, 0x3fc0, 0xbf00});
  const CheckpointLayer bf16 = model.load();
  const MatrixView& matrix = bf16.weights.experts[3].down;
  EXPECT_EQ(scale_at(matrix, 0, 0), 1.0f);
  EXPECT_EQ(scale_at(matrix, 0, 143), 2.0f);
  EXPECT_EQ(scale_at(matrix, 191, 0), 1.5f);
  EXPECT_EQ(scale_at(matrix, 191, 143), -0.5f);
  EXPECT_EQ(code_at(matrix, 191, 143), code_at(f32.weights.experts[3].down, 191, 143));
}

TEST(Unheard, PipesAndFoldersInPlaceOfFilesAreErrorsAtOnce) {
  const ModelFolder model("mixtral");
  for (const char* name : {"config.json", "model.safetensors.index.json", "model.safetensors"}) {
    SCOPED_TRACE(name);
    model.write();
    std::filesystem::remove(model.folder() / name);
    ASSERT_EQ(mkfifo((model.folder() / name).c_str(), 0600), 0);
    expect_error(ErrorCode::io, {name}, [&] { load_layer(model.folder().path(), 0); });
    std::filesystem::remove(model.folder() / name);
    std::filesystem::create_directory(model.folder() / name);
    expect_error(ErrorCode::io, {name}, [&] { load_layer(model.folder().path(), 0); });
    std::filesystem::remove(model.folder() / name);
  }
}

TEST(Unheard, AZeroByteInTheNameOfAShardCutsNothingOff) {
  const ModelFolder model("mixtral");
  model.write();
  write_text(model.folder() / "model.safetensors.index.json",
             R"({"weight_map":{"a":"model.safetensors\u0000.txt"}})");
  expect_error(ErrorCode::format, {"tensor a", "beside the index"},
               [&] { TensorSet(model.folder().path()); });
}

TEST(Unheard, APathThatIsTooLongIsAnErrorOfTheSystem) {
  expect_error(ErrorCode::io, {"index.json"}, [] { TensorSet("/" + std::string(300, 'x')); });
}

/// No file of this process grows beyond some bytes while this lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(SafetensorsWriter, AFullDiskLeavesTheOldFileAndNoPart) {
  const TemporaryFolder folder;
  write_text(folder / "x.safetensors", "old");
  const Tensors tensors = {
      {"a", make_tensor(Dtype::f32, {100'000}, std::vector<float>(100'000, 1))}};
  std::string message;
  {
    const FullDisk full(1000);
    try {
      write_tensors(folder / "x.safetensors", tensors);
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_NE(message.find("cannot be written"), std::string::npos) << message;
  EXPECT_EQ(read_text(folder / "x.safetensors"), "old");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace megamoe::test
