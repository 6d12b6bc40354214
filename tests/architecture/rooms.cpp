#include "architecture/rooms.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace megamoe::test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Left to right; a room may include those of earlier columns, not its neighbours in its own.
const std::vector<std::vector<std::string>> kColumns = {
    {"base"},      {"numerics"}, {"layout"},       {"routing"},     {"schedule"},
    {"plan"},      {"device"},   {"symmetric"},    {"cpu", "sm90"}, {"mqa_logits"},
    {"execution"}, {"api"},      {"cli", "python"}};

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
  // topology hangs off base: where ranks run is decided where layers are made.
  rules["topology"] = {"base"};
  for (const char* room : {"api", "cli"}) rules[room].insert("topology");
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

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

bool is_cuda_header(const std::string& path) {
  static const Names headers = {"vector_types.h", "driver_types.h", "device_launch_parameters.h"};
  if (headers.count(path) == 1) return true;
  for (const char* library :
       {"cuda", "cublas", "cufile", "curand", "cutensor", "nvml.", "nvrtc", "nvshmem", "nvtx",
        "nccl", "cub/", "thrust/", "cute/", "cutlass/", "crt/", "cooperative_groups"}) {
    if (begins_with(path, library)) return true;
  }
  return false;
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

/// The text between the brackets of the first call of megamoe_room or megamoe_<kind>_room.
std::optional<std::string> room_arguments(const std::string& text) {
  for (std::size_t at = text.find("megamoe_"); at != std::string::npos;
       at = text.find("megamoe_", at + 1)) {
    const std::size_t open = text.find_first_of("(\n", at);
    if (open == std::string::npos || text[open] != '(') continue;
    const std::string command = text.substr(at, text.find_last_not_of(' ', open - 1) + 1 - at);
    const std::string ending = "room";
    if (command.size() < ending.size() ||
        command.substr(command.size() - ending.size()) != ending) {
      continue;
    }
    return text.substr(open + 1, text.find(')', open) - open - 1);
  }
  return std::nullopt;
}

Declaration read_declaration(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  for (std::string line; std::getline(stream, line);) text += line.substr(0, line.find('#')) + "\n";
  const std::optional<std::string> arguments = room_arguments(text);
  if (!arguments) return {};
  Declaration declaration{true, "", {}};
  std::istringstream words(*arguments);
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

struct Include {
  std::string path;
  bool quoted = false;
};

/// What a line of a source file includes, if it does.
std::optional<Include> read_include(const std::string& line) {
  std::size_t at = 0;
  const auto skip_blanks = [&] { at = std::min(line.find_first_not_of(" \t", at), line.size()); };
  skip_blanks();
  if (line.compare(at, 1, "#") != 0) return std::nullopt;
  ++at;
  skip_blanks();
  const std::string directive = "include";
  if (line.compare(at, directive.size(), directive) != 0) return std::nullopt;
  at += directive.size();
  skip_blanks();
  if (at == line.size() || (line[at] != '"' && line[at] != '<')) return std::nullopt;
  const bool quoted = line[at] == '"';
  const std::size_t end = line.find(quoted ? '"' : '>', at + 1);
  if (end == std::string::npos) return std::nullopt;
  return Include{line.substr(at + 1, end - at - 1), quoted};
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
    std::ifstream stream(file);
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      const std::optional<Include> include = read_include(line);
      if (!include) continue;
      ++report_.includes;
      check_include(file.lexically_relative(root_).string() + ":" + std::to_string(number), room,
                    *include);
    }
  }

  void check_include(const std::string& where, const std::string& room, const Include& include) {
    const std::string& path = include.path;
    const std::string to = first_component(path);
    const bool is_room = path.find('/') != std::string::npos && rules().count(to) == 1;
    if (!is_room && is_cuda_header(path)) {
      if (kCudaRooms.count(room) == 0) refuse(where, room + " includes CUDA's " + path);
    } else if (!is_room) {
      if (include.quoted) refuse(where, path + " does not begin with the name of a room");
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
