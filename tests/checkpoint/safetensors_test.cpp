#include <cstring>
#include <set>
#include <utility>

#include "checkpoint/model_folder.hpp"

namespace megamoe::test {
namespace {

Tensor counting(Dtype dtype, std::vector<std::int64_t> shape) {
  std::int64_t bits = bits_of(dtype);
  for (std::int64_t size : shape) bits *= size;
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < bits / 8; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 7 + 1));
  return make_tensor(dtype, std::move(shape), bytes);
}

TEST(Safetensors, EveryTypeAndRankComesBackAsItWasWritten) {
  const Tensors written = {
      {"bool", counting(Dtype::boolean, {3})},    {"u8", counting(Dtype::u8, {5, 1})},
      {"i8", counting(Dtype::i8, {2, 3})},        {"u16", counting(Dtype::u16, {3})},
      {"i16", counting(Dtype::i16, {3})},         {"f16", counting(Dtype::f16, {1, 1, 3})},
      {"bf16", counting(Dtype::bf16, {7})},       {"u32", counting(Dtype::u32, {3})},
      {"i32", counting(Dtype::i32, {3})},         {"f32", counting(Dtype::f32, {3, 2})},
      {"u64", counting(Dtype::u64, {3})},         {"i64", counting(Dtype::i64, {3})},
      {"f64", counting(Dtype::f64, {3})},         {"e4m3", counting(Dtype::f8_e4m3, {9})},
      {"e5m2", counting(Dtype::f8_e5m2, {9})},    {"e8m0", counting(Dtype::f8_e8m0, {9})},
      {"f4", counting(Dtype::f4, {3, 2})},        {"a number: rank 0", counting(Dtype::f32, {})},
      {"empty", counting(Dtype::f32, {4, 0, 2})}, {"ein schöner Name", counting(Dtype::u8, {1})}};
  const TemporaryFolder folder;
  write_tensors(folder / "all.safetensors", written);
  const SafetensorsFile file(folder / "all.safetensors");
  EXPECT_EQ(file.tensors().size(), written.size());
  for (const auto& [name, tensor] : written) {
    ASSERT_TRUE(file.has(name)) << name;
    const TensorView& view = file.tensor(name);
    EXPECT_EQ(view.dtype, tensor.dtype) << name;
    EXPECT_EQ(view.shape, tensor.shape) << name;
    EXPECT_TRUE(
        std::equal(view.bytes.begin(), view.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << name;
  }
}

TEST(Safetensors, AFileWithoutTensorsIsLegal) {
  const TemporaryFolder folder;
  write_tensors(folder / "none.safetensors", {});
  EXPECT_TRUE(SafetensorsFile(folder / "none.safetensors").tensors().empty());
}

TEST(Safetensors, AnAbsentTensorIsNamedWithTheFileAndWhatIsNear) {
  const TemporaryFolder folder;
  write_tensors(folder / "x.safetensors",
                {{"model.layers.0.mlp.gate.weight", counting(Dtype::u8, {1})},
                 {"model.layers.0.mlp.gate.wait", counting(Dtype::u8, {1})},
                 {"a", counting(Dtype::u8, {1})},
                 {"z", counting(Dtype::u8, {1})}});
  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_FALSE(file.has("model.layers.0.mlp.gate.weigh"));
  expect_error(ErrorCode::format,
               {"x.safetensors", "'model.layers.0.mlp.gate.weigh'",
                "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate.wait"},
               [&] { file.tensor("model.layers.0.mlp.gate.weigh"); });
  expect_error(ErrorCode::format, {"'zz'", ", z"}, [&] { file.tensor("zz"); });
  expect_error(ErrorCode::format, {"''"}, [&] { file.tensor(""); });
}

TEST(Safetensors, WhatTheSystemRefusesIsAnErrorOfTheSystem) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::io, {"absent.safetensors", "No such file"},
               [&] { SafetensorsFile(folder / "absent.safetensors"); });
  expect_error(ErrorCode::io, {"is no file"}, [&] { SafetensorsFile file(folder.path()); });
}

TEST(SafetensorsWriter, ReplacesAFileWholeAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  write_text(folder / "x.safetensors", "old");
  write_tensors(folder / "x.safetensors", {{"a", counting(Dtype::f32, {2})}});
  EXPECT_TRUE(SafetensorsFile(folder / "x.safetensors").has("a"));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, std::set<std::string>{"x.safetensors"});
}

TEST(SafetensorsWriter, AFailureLeavesTheOldFileAndNothingBeside) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::io, {"absent/x.safetensors", "cannot be written"},
               [&] { write_tensors(folder / "absent/x.safetensors", {}); });
  // A folder of that name cannot be replaced by a file: the last step fails.
  std::filesystem::create_directories(folder / "taken/inside");
  expect_error(ErrorCode::io, {"taken"}, [&] { write_tensors(folder / "taken", {}); });
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, std::set<std::string>{"taken"});
}

TEST(SafetensorsWriter, BytesThatDoNotFitTheShapeAndBadNamesAreRefused) {
  const TemporaryFolder folder;
  const auto write = [&](const std::vector<TensorToWrite>& tensors) {
    return [&folder, tensors] { write_safetensors(folder / "x", tensors); };
  };
  const std::vector<std::byte> bytes(8);
  expect_error(ErrorCode::invalid_argument, {"tensor a", "F32", "8 bytes"},
               write({{"a", Dtype::f32, {3}, bytes}}));
  expect_error(ErrorCode::invalid_argument, {"tensor a"},
               write({{"a", Dtype::f32, {-1, -2}, bytes}}));
  expect_error(ErrorCode::invalid_argument, {"tensor a"},
               write({{"a", Dtype::f32, {INT64_MAX, 2}, bytes}}));
  expect_error(ErrorCode::invalid_argument, {"two tensors", "'a'"},
               write({{"a", Dtype::f32, {2}, bytes}, {"a", Dtype::f32, {2}, bytes}}));
  expect_error(ErrorCode::invalid_argument, {"__metadata__"},
               write({{"__metadata__", Dtype::f32, {2}, bytes}}));
  expect_error(ErrorCode::invalid_argument, {"UTF-8"}, write({{"\xff", Dtype::f32, {2}, bytes}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace megamoe::test
