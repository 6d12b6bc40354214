#include "architecture/file_length.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

namespace megamoe::test {
namespace {

namespace fs = std::filesystem;

const char* const kFolders[] = {"bench",  "cli", "cmake", "include",
                                "python", "src", "tests", "tools"};

bool is_source(const fs::path& path) {
  static const std::set<std::string> endings = {".hpp", ".cpp", ".cuh", ".cu",
                                                ".h",   ".py",  ".sh",  ".cmake"};
  return path.filename() == "CMakeLists.txt" || endings.count(path.extension().string()) == 1;
}

int count_lines(const fs::path& path) {
  std::ifstream stream(path);
  int lines = 0;
  for (std::string line; std::getline(stream, line);) ++lines;
  return lines;
}

struct Exceptions {
  std::map<std::string, std::string> reasons;
  std::vector<std::string> violations;
};

Exceptions read_exceptions(const fs::path& path) {
  Exceptions exceptions;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos || line.find_first_not_of(' ', colon + 1) == std::string::npos) {
      exceptions.violations.push_back(path.filename().string() + ": no reason in the line \"" +
                                      line + "\": \"path: reason\" is wanted");
      continue;
    }
    exceptions.reasons[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return exceptions;
}

std::vector<fs::path> source_files(const fs::path& root) {
  std::vector<fs::path> files;
  for (const char* folder : kFolders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

LengthReport check_lengths(const fs::path& root, const fs::path& exceptions_path) {
  Exceptions exceptions = read_exceptions(exceptions_path);
  LengthReport report{std::move(exceptions.violations), 0};
  for (const fs::path& file : source_files(root)) {
    ++report.files;
    const int lines = count_lines(file);
    if (lines <= kMaxLines) continue;
    const std::string name = file.lexically_relative(root).generic_string();
    if (exceptions.reasons.erase(name) == 0) {
      report.violations.push_back(name + " has " + std::to_string(lines) + " lines: at most " +
                                  std::to_string(kMaxLines) + ", or a reason in " +
                                  exceptions_path.filename().string());
    }
  }
  for (const auto& [name, reason] : exceptions.reasons) {
    report.violations.push_back(exceptions_path.filename().string() + ": " + name +
                                " is no long file: take its line out");
  }
  return report;
}

}  // namespace megamoe::test
