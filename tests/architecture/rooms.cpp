#include "architecture/rooms.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace megamoe::test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Left to right; a room may include those of earlier columns, not its neighbours in its own.
const std::vector<std::vector<std::string>> kColumns = {
    {"base"},      {"numerics"},  {"layout"},
    {"routing"},   {"schedule"},  {"plan"},
    {"device"},    {"symmetric"}, {"cpu", "sm90", "mqa_logits"},
    {"execution"}, {"api"},       {"cli", "python"}};

/// Rooms that may include a header of CUDA. All others are compiled by the host's compiler alone.
const Names kCudaRooms = {"device", "symmetric", "sm90", "mqa_logits", "execution", "python"};

/// The rooms that each room may include, itself and the public headers apart.
std::map<std::string, Names> make_rules() {
  std::map<std::string, Names> rules;
  Names left;
  for (const std::vector<std::string>& column : kColumns) {
    // What stands in for rooms in a build without CUDA declares the same symbols as they do.
    if (column[0] == "api") rules["no_cuda"] = left;
    for (const std::string& room : column) rules[room] = left;
    left.insert(column.begin(), column.end());
  }
  // checkpoint hangs off numerics, and the face of the library uses it.
  rules["checkpoint"] = {"base", "numerics"};
  for (const char* room : {"api", "cli", "python"}) rules[room].insert("checkpoint");
  rules["megamoe"] = {};
  return rules;
}

const std::map<std::string, Names>& rules() {
  static const std::map<std::string, Names> all = make_rules();
  return all;
}

bool may_include(const std::string& from, const std::string& to) {
  return from == to || to == "megamoe" || rules().at(from).count(to) == 1;
}

bool is_cuda_header(const std::string& path) {
  static const std::regex header(
      "(cuda.*|cu(blas|file|rand|tensor).*|nv(ml|rtc|shmem|toolsext|tx).*|nccl.*|cooperative_"
      "groups.*"
      "|(cub|thrust|cute|cutlass|crt)/.*|(vector_types|driver_types|device_launch_parameters)\\.h)",
      std::regex::icase);
  return std::regex_match(path, header);
}

bool is_source(const fs::path& path) {
  static const Names endings = {".hpp", ".cpp", ".cuh", ".cu", ".h"};
  return endings.count(path.extension().string()) == 1;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  if (!fs::is_directory(folder)) return entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string first_component(const std::string& path) {
  return path.substr(0, path.find('/'));
}

/// What one room says in its CMakeLists.txt.
struct Declaration {
  bool found = false;
  std::string name;
  Names depends;
};

Declaration read_declaration(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  for (std::string line; std::getline(stream, line);) text += line.substr(0, line.find('#')) + "\n";
  static const std::regex call("megamoe_[a-z0-9_]*room\\s*\\(([^)]*)\\)");
  std::smatch match;
  if (!std::regex_search(text, match, call)) return {};
  Declaration declaration{true, "", {}};
  std::istringstream words(match[1].str());
  words >> declaration.name;
  bool depends = false;
  for (std::string word; words >> word;) {
    const bool keyword = word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
    if (keyword) {
      depends = word == "DEPENDS";
    } else if (depends) {
      declaration.depends.insert(word);
    }
  }
  return declaration;
}

class Checker {
 public:
  explicit Checker(const fs::path& root) : root_(root) {}

  RoomReport run() {
    for (const fs::path& room : sorted_entries(root_ / "src")) {
      if (fs::is_directory(room)) declare(room);
    }
    for (const auto& [room, declaration] : declarations_) check_declaration(room, declaration);
    check_folder(root_ / "include", "megamoe");
    for (const fs::path& room : sorted_entries(root_ / "src")) {
      const std::string name = room.filename().string();
      if (fs::is_directory(room) && rules().count(name) == 1) check_folder(room, name);
    }
    for (const char* room : {"cli", "python"}) check_folder(root_ / room, room);
    return report_;
  }

 private:
  void refuse(const std::string& where, const std::string& what) {
    report_.violations.push_back(where + ": " + what);
  }

  void declare(const fs::path& room) {
    const std::string name = room.filename().string();
    if (rules().count(name) == 0) {
      refuse("src/" + name, "no room of that name: tests/architecture/rooms.cpp lists them");
    } else if (fs::exists(room / "CMakeLists.txt")) {
      declarations_[name] = read_declaration(room / "CMakeLists.txt");
      ++report_.rooms;
    }
  }

  void check_declaration(const std::string& room, const Declaration& declaration) {
    const std::string where = "src/" + room + "/CMakeLists.txt";
    if (!declaration.found)
      return refuse(where, "declares no room: megamoe_room(" + room + " ...)");
    if (declaration.name != room) refuse(where, "declares the room " + declaration.name);
    for (const std::string& left : declaration.depends) {
      if (left == room || !may_include(room, left)) {
        refuse(where, room + " depends on " + left + ", which is not to its left");
      }
    }
  }

  /// The rooms that `room` names, and theirs.
  Names reach(const std::string& room) const {
    Names reached;
    std::vector<std::string> left = {room};
    while (!left.empty()) {
      const std::string next = left.back();
      left.pop_back();
      if (!reached.insert(next).second || declarations_.count(next) == 0) continue;
      const Names& depends = declarations_.at(next).depends;
      left.insert(left.end(), depends.begin(), depends.end());
    }
    return reached;
  }

  void check_folder(const fs::path& folder, const std::string& room) {
    if (!fs::is_directory(folder)) return;
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) check_file(file, room);
  }

  void check_file(const fs::path& file, const std::string& room) {
    static const std::regex include("\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
    std::ifstream stream(file);
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      ++report_.includes;
      const std::string where =
          file.lexically_relative(root_).string() + ":" + std::to_string(number);
      check_include(where, room, match[2].str(), match[1].str() == "\"");
    }
  }

  void check_include(const std::string& where, const std::string& room, const std::string& path,
                     bool quoted) {
    const std::string to = first_component(path);
    const bool is_room = path.find('/') != std::string::npos && rules().count(to) == 1;
    if (!is_room && is_cuda_header(path)) {
      if (kCudaRooms.count(room) == 0) refuse(where, room + " includes CUDA's " + path);
    } else if (!is_room) {
      if (quoted) refuse(where, path + " does not begin with the name of a room");
    } else if (!may_include(room, to)) {
      refuse(where, room + " includes " + path + ", which is not to its left");
    } else if (to != "megamoe" && declarations_.count(room) == 1 && reach(room).count(to) == 0) {
      refuse(where,
             room + " includes " + path + ", but its CMakeLists.txt does not depend on " + to);
    }
  }

  fs::path root_;
  std::map<std::string, Declaration> declarations_;
  RoomReport report_;
};

}  // namespace

RoomReport check_rooms(const fs::path& root) {
  return Checker(root).run();
}

}  // namespace megamoe::test
