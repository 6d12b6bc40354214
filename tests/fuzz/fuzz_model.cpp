// Any bytes as a model's folder: an Error, or a layer whose every matrix can be read and routed to.
// The input is config.json, a zero byte, the index (empty: there is none), a zero byte, and
// model.safetensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "megamoe/checkpoint.hpp"
#include "megamoe/error.hpp"
#include "megamoe/router.hpp"

#include "layout/weight_matrix.hpp"

namespace megamoe {
namespace {

/// Of this process; gone at its end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "megamoe-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

/// What stands before the next zero byte, which goes too.
std::string_view take_part(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

void read_all(const ExpertWeights& expert) {
  for (const MatrixView* matrix : {&expert.gate, &expert.up, &expert.down}) {
    check_matrix(*matrix, matrix->rows, matrix->columns, "a matrix");
    for (std::int64_t i = 0; i < matrix->rows * matrix->columns; ++i)
      (void)value_at(*matrix, i / matrix->columns, i % matrix->columns);
  }
}

void check(const CheckpointLayer& layer) {
  for (const ExpertWeights& expert : layer.weights.experts) read_all(expert);
  for (const ExpertWeights& expert : layer.weights.shared) read_all(expert);
  std::vector<BFloat16> x(static_cast<std::size_t>(layer.config.hidden), BFloat16{0x3f80});
  std::vector<std::int64_t> ids(static_cast<std::size_t>(layer.config.top_k), -1);
  std::vector<float> weights(ids.size());
  route(layer.router, x, ids, weights);
  std::sort(ids.begin(), ids.end());
  const bool distinct = std::adjacent_find(ids.begin(), ids.end()) == ids.end();
  if (!distinct || ids.front() < 0 || ids.back() >= layer.config.experts) std::abort();
}

}  // namespace
}  // namespace megamoe

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const megamoe::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  folder.write("config.json", megamoe::take_part(rest));
  const std::string_view index = megamoe::take_part(rest);
  const char* const kIndex = "model.safetensors.index.json";
  std::filesystem::remove(folder.path() / kIndex);
  if (!index.empty()) folder.write(kIndex, index);
  folder.write("model.safetensors", rest);
  megamoe::CheckpointLayer layer;
  try {
    layer = megamoe::load_layer(folder.path(), 0);
  } catch (const megamoe::Error&) {
    return 0;
  }
  megamoe::check(layer);
  return 0;
}
