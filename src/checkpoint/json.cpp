#include "checkpoint/json.hpp"

#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "checkpoint/mapped_file.hpp"

namespace megamoe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostShown = 200;  // characters of a file that a message repeats

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  // The parser would skip a byte order mark and take a NUL for the end of the text.
  if (text.substr(0, 3) == "\xEF\xBB\xBF" || text.find('\0') != std::string_view::npos) {
    fail(ErrorCode::format, "{} has a byte order mark or a NUL: plain UTF-8 JSON is wanted", what);
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxJsonDepth) {
      fail(ErrorCode::format, "{} is nested more than {} levels deep", what, kMaxJsonDepth);
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        fail(ErrorCode::format, "{} has the name '{}' twice", what, shown(key));
      }
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail(ErrorCode::format, "{} is no JSON: {}", what, shown(std::string(error.what())));
  }
  if (!json.is_object()) fail(ErrorCode::format, "{} is no JSON object", what);
  return json;
}

Json read_json(const std::filesystem::path& path) {
  const MappedFile file = map_file(path);
  return parse_json({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()},
                    path.string());
}

std::string shown(const Json& value) {
  return shown(value.dump());
}

std::string shown(std::string text) {
  if (text.size() > kMostShown) {
    text.resize(kMostShown);
    text += "...";
  }
  return text;
}

}  // namespace megamoe
