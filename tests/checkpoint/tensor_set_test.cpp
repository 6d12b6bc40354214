#include "checkpoint/tensor_set.hpp"

#include "checkpoint/model_folder.hpp"

namespace megamoe::test {
namespace {

Tensor floats(const std::vector<float>& values) {
  return make_tensor(Dtype::f32, {static_cast<std::int64_t>(values.size())}, values);
}

void write_index(const TemporaryFolder& folder, const std::string& text) {
  write_text(folder / "model.safetensors.index.json", text);
}

TEST(TensorSet, ShardsThatNobodyAsksForAreNotOpened) {
  const TemporaryFolder folder;
  write_tensors(folder / "a.safetensors", {{"a", floats({1, 2})}});
  write_text(folder / "broken.safetensors", "no safetensors");
  write_index(folder, R"({"weight_map":{"a":"a.safetensors","b":"broken.safetensors",
                          "c":"absent.safetensors"}})");
  const TensorSet tensors(folder.path());
  EXPECT_EQ(tensors.floats("a", {2}), (std::vector<float>{1, 2}));
  EXPECT_TRUE(tensors.has("b"));
  EXPECT_FALSE(tensors.has("d"));
  expect_error(ErrorCode::format, {"broken.safetensors"}, [&] { tensors.tensor("b"); });
  expect_error(ErrorCode::io, {"absent.safetensors"}, [&] { tensors.tensor("c"); });
  expect_error(ErrorCode::format, {"'d'", "near it are a, b, c"}, [&] { tensors.tensor("d"); });
}

TEST(TensorSet, AShardWithoutTheTensorThatTheIndexPromisesIsNamed) {
  const TemporaryFolder folder;
  write_tensors(folder / "a.safetensors", {{"a", floats({1, 2})}});
  write_index(folder, R"({"weight_map":{"b":"a.safetensors"}})");
  expect_error(ErrorCode::format, {"a.safetensors", "no tensor 'b'"},
               [&] { TensorSet(folder.path()).tensor("b"); });
}

TEST(TensorSet, ShardsOutsideTheFolderAreRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "model");
  write_tensors(folder / "outside.safetensors", {{"a", floats({1})}});
  for (const std::string& shard :
       {std::string("../outside.safetensors"), (folder / "outside.safetensors").string(),
        std::string("x/../../outside.safetensors"), std::string(".."), std::string("."),
        std::string()}) {
    nlohmann::json index;
    index["weight_map"]["a"] = shard;
    write_text(folder / "model/model.safetensors.index.json", index.dump());
    expect_error(ErrorCode::format, {"tensor a", "beside the index"},
                 [&] { TensorSet(folder / "model").tensor("a"); });
  }
}

TEST(TensorSet, AnIndexThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}", "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{\"\xff\":\"b\"}}"}) {
    write_index(folder, text);
    expect_error(ErrorCode::format, {"model.safetensors.index.json"},
                 [&] { TensorSet{folder.path()}; });
  }
  for (const std::size_t depth : {60, 100, 3'000'000}) {
    write_index(folder, "{\"weight_map\":{\"a\":" + std::string(depth, '[') +
                            std::string(depth, ']') + "}}");
    expect_error(ErrorCode::format, {"model.safetensors.index.json"},
                 [&] { TensorSet{folder.path()}; });
  }
}

TEST(TensorSet, AFolderWithoutWeightsIsNamed) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::io, {"model.safetensors"}, [&] { TensorSet{folder.path()}; });
}

TEST(TensorSet, AnotherShapeIsRefusedWithWantedAndGot) {
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors",
                {{"a", make_tensor<float>(Dtype::f32, {2, 3}, {1, 2, 3, 4, 5, 6})}});
  const TensorSet tensors(folder.path());
  expect_error(ErrorCode::format, {"tensor a", "[2, 3]", "[3, 2]"}, [&] {
    tensors.tensor("a", {3, 2});
  });
  expect_error(ErrorCode::format, {"tensor a", "[2, 3]", "[6]"}, [&] { tensors.tensor("a", {6}); });
}

TEST(TensorSet, FloatsComeFromThreeTypesAndNoOther) {
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors",
                {{"f32", make_tensor<float>(Dtype::f32, {2}, {1.5f, -2})},
                 {"bf16", make_tensor<std::uint16_t>(Dtype::bf16, {2}, {0x3fc0, 0xc000})},
                 {"f16", make_tensor<std::uint16_t>(Dtype::f16, {2}, {0x3e00, 0xc000})},
                 {"i32", make_tensor<std::int32_t>(Dtype::i32, {2}, {1, 2})}});
  const TensorSet tensors(folder.path());
  for (const char* name : {"f32", "bf16", "f16"}) {
    EXPECT_EQ(tensors.floats(name, {2}), (std::vector<float>{1.5f, -2})) << name;
  }
  expect_error(ErrorCode::format, {"tensor i32", "is I32"}, [&] { tensors.floats("i32", {2}); });
}

TEST(TensorSet, RemembersWhatNobodyAskedFor) {
  const ModelFolder model("mixtral");
  model.write();
  const TensorSet tensors(model.folder().path());
  const std::string prefix = "model.layers.0.block_sparse_moe.experts.0.";
  EXPECT_EQ(tensors.unread(prefix).size(), 3u);
  (void)tensors.tensor(prefix + "w2.weight");
  EXPECT_EQ(tensors.unread(prefix),
            (std::vector<std::string>{prefix + "w1.weight", prefix + "w3.weight"}));
  EXPECT_TRUE(tensors.unread("model.layers.1.").empty());
}

}  // namespace
}  // namespace megamoe::test
