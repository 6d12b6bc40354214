#include "checkpoint/model_folder.hpp"

#include <fstream>
#include <iterator>

namespace megamoe::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "megamoe-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) {
    list.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  write_safetensors(path, list);
}

ModelFolder::ModelFolder(const std::string& fixture) {
  const std::string source = std::string(MEGAMOE_FIXTURES) + "/" + fixture;
  config = nlohmann::json::parse(read_text(source + "/config.json"));
  const SafetensorsFile file(source + "/model.safetensors");
  for (const auto& [name, view] : file.tensors()) {
    tensors[name] = {view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
  }
}

void ModelFolder::write() const {
  write_text(folder_ / "config.json", config.dump());
  write_tensors(folder_ / "model.safetensors", tensors);
}

void ModelFolder::write_shards(std::size_t shards) const {
  write_text(folder_ / "config.json", config.dump());
  std::vector<Tensors> parts(shards);
  nlohmann::json index;
  std::size_t n = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t shard = n++ % shards;
    parts[shard][name] = tensor;
    index["weight_map"][name] = "part-" + std::to_string(shard) + ".safetensors";
  }
  for (std::size_t shard = 0; shard < shards; ++shard) {
    write_tensors(folder_ / ("part-" + std::to_string(shard) + ".safetensors"), parts[shard]);
  }
  write_text(folder_ / "model.safetensors.index.json", index.dump());
}

CheckpointLayer ModelFolder::load(std::int64_t layer) const {
  write();
  return load_layer(folder_.path(), layer);
}

}  // namespace megamoe::test
