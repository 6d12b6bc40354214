#include "cli/bench_records.hpp"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/names.hpp"
#include "cli/commit.hpp"

namespace megamoe::cli {
namespace {

/// As this process was called.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) c = c == '\0' ? ' ' : c;
  const auto program = text.substr(0, text.find(' '));
  const auto folder = program.rfind('/');
  return folder == std::string::npos ? text : text.substr(folder + 1);
}

std::string today() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace

nlohmann::json to_records(const std::vector<MeasuredRecord>& measured) {
  nlohmann::json records = nlohmann::json::array();
  for (const MeasuredRecord& it : measured) {
    records.push_back({{"kernel", it.kernel},
                       {"recipe", it.recipe},
                       {"execution", it.execution},
                       {"ranks", it.ranks},
                       {"shape", it.shape},
                       {"tokens", it.tokens},
                       {"us", it.us},
                       {"tflops", it.tflops},
                       {"gbps", it.gbps},
                       {"device", it.device},
                       {"commit", commit()},
                       {"date", today()},
                       {"command", command_line()}});
  }
  return records;
}

nlohmann::json bench_records(const LayerSource& source, const std::string& kernel,
                             const std::string& device, const std::vector<SweepPoint>& points) {
  const LayerConfig& config = source.config();
  std::vector<MeasuredRecord> measured;
  for (const SweepPoint& point : points) {
    measured.push_back(
        {.kernel = kernel,
         .recipe = std::string(name_of(config.recipe)),
         .execution = std::string(name_of(point.execution)),
         .ranks = source.ranks(),
         .shape = fmt::format("H{} I{} E{}+{} k{}", config.hidden, config.intermediate,
                              config.experts, config.shared_experts, config.top_k),
         .tokens = point.tokens,
         .us = point.median_ns / 1e3,
         .tflops = point.flops / point.median_ns / 1e3,
         .gbps = point.weight_bytes / point.median_ns,
         .device = device});
  }
  return to_records(measured);
}

void append_records(const std::string& path, const nlohmann::json& records) {
  nlohmann::json all = nlohmann::json::array();
  if (std::filesystem::exists(path)) {
    std::ifstream file(path);
    all = nlohmann::json::parse(file, nullptr, false);
    if (!all.is_array()) {
      fail(ErrorCode::format,
           "{} holds no JSON array that records could be added to: name another file", path);
    }
  }
  all.insert(all.end(), records.begin(), records.end());
  const std::string draft = fmt::format("{}.{}.part", path, getpid());
  std::ofstream file(draft);
  file << all.dump(1) << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(draft, path, error);
  if (!file || error) {
    std::remove(draft.c_str());
    fail(ErrorCode::io, "{} could not be written: is the folder there and writable?", path);
  }
}

}  // namespace megamoe::cli
