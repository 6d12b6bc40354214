// Records, pictures and progress: what `bench` writes.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "megamoe/error.hpp"

#include "cli/bench_records.hpp"
#include "cli/machine_rates.hpp"
#include "cli/plot.hpp"
#include "cli/progress.hpp"

namespace megamoe::cli {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Records, AreAddedToThoseThatTheFileHas) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("megamoe-records-" + std::to_string(getpid()));
  append_records(path, nlohmann::json::array({1, 2}));
  append_records(path, nlohmann::json::array({3}));
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json::array({1, 2, 3}));
  std::ofstream(path) << "{\"not\": \"an array\"}";
  EXPECT_THROW(append_records(path, nlohmann::json::array({4})), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(append_records("/no/such/folder/x.json", nlohmann::json::array({4})), Error);
}

TEST(Records, HaveEveryFieldThatNamesAMeasurement) {
  LayerRequest request;
  request.ranks = 2;
  SweepPoint point{.tokens = 4, .median_ns = 2000, .weight_bytes = 4000, .flops = 8000};
  const auto records = bench_records(LayerSource(request), "cpu test", "a processor", {point});
  ASSERT_EQ(records.size(), 1u);
  for (const char* field : {"kernel", "recipe", "execution", "ranks", "shape", "tokens", "us",
                            "tflops", "gbps", "device", "commit", "date", "command"}) {
    EXPECT_TRUE(records[0].contains(field)) << field;
  }
  EXPECT_EQ(records[0]["device"], "a processor");
  EXPECT_EQ(records[0]["us"], 2.0);
  EXPECT_EQ(records[0]["gbps"], 2.0);
  EXPECT_EQ(records[0]["tflops"], 0.004);
}

TEST(Plot, HasALineForEachSeriesADotForEachPointAndLabels) {
  const std::string svg =
      line_chart({"a < b",
                  "on a machine",
                  "tokens",
                  "us",
                  {{"fused", {{1, 10}, {16, 40}, {256, 900}}}, {"split", {{1, 12}, {0, 5}}}}});
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<circle"), 4u) << "a point that is not positive has no place";
  for (const char* part : {">tokens<", ">us<", ">fused<", ">split<", "a &lt; b", ">on a machine<",
                           ">100<", "</svg>"}) {
    EXPECT_EQ(count(svg, part), 1u) << part;
  }
}

TEST(Plot, MarksThePointsOwnXWhereThereIsRoomElsePowersOfTen) {
  const auto chart = [](std::vector<std::pair<double, double>> points) {
    return line_chart({"t", "", "x", "y", {{"one", std::move(points)}}});
  };
  const std::string few = chart({{1, 3}, {16, 3}, {256, 3}});
  EXPECT_EQ(count(few, ">16<"), 1u);
  EXPECT_EQ(count(few, ">256<"), 1u);
  EXPECT_EQ(count(few, ">10<"), 0u);
  const std::string crowded = chart({{96, 3}, {97, 3}, {98, 3}, {99, 3}, {1000, 3}});
  EXPECT_EQ(count(crowded, ">97<"), 0u);
  EXPECT_EQ(count(crowded, ">100<"), 1u);
}

TEST(Plot, NumbersAreReadableAndALongTitleKeepsBothItsEnds) {
  const std::string path = "begin" + std::string(300, '/') + "\u00e9nd";
  const std::string svg = line_chart({path, "", "x", "y", {{"one", {{1, 1e6}, {2, 3e6}}}}});
  EXPECT_EQ(count(svg, ">1\u00a0000\u00a0000<"), 1u);
  EXPECT_EQ(count(svg, "e+06<"), 0u);
  EXPECT_EQ(count(svg, path), 0u);
  EXPECT_EQ(count(svg, ">begin/"), 1u);
  EXPECT_EQ(count(svg, "/\u00e9nd<"), 1u);
}

TEST(Plot, OnePointAndNoneAreDrawnInsideThePicture) {
  for (const auto& points : {std::vector<std::pair<double, double>>{{64, 5}},
                             std::vector<std::pair<double, double>>{}}) {
    const std::string svg = line_chart({"t", "", "x", "y", {{"one", points}}});
    EXPECT_EQ(count(svg, "nan"), 0u);
    EXPECT_EQ(count(svg, "inf"), 0u);
    EXPECT_EQ(count(svg, "<circle"), points.size());
  }
}

TEST(Progress, ShowsHowMuchIsDone) {
  using std::chrono::seconds;
  EXPECT_EQ(progress_text("packing", 0, 0, seconds(3), Colour::none), "packing 3 s");
  EXPECT_EQ(progress_text("bench", 1, 2, seconds(4), Colour::none),
            "bench [############............] 50 % 4 s");
  EXPECT_EQ(count(progress_text("bench", 9, 2, seconds(4), Colour::none), "100 %"), 1u);
  EXPECT_EQ(count(progress_text("bench", 1, 2, seconds(4), Colour::ansi), "\033["), 2u);
}

TEST(Bound, IsTheSlowerOfMemoryAndArithmetic) {
  const MachineRates rates{.bytes_per_ns = 10, .flops_per_ns = 100, .threads = 1};
  EXPECT_EQ(bound_of(1000, 1000, rates).name(), "memory");
  EXPECT_EQ(bound_of(1000, 1000, rates).ns(), 100);
  EXPECT_EQ(bound_of(1000, 50000, rates).name(), "arithmetic");
  EXPECT_EQ(bound_of(1000, 50000, rates).ns(), 500);
}

TEST(Rates, AreWhatTheUserGivesInsteadOfAMeasurement) {
  const MachineRates rates = find_rates(1, {.bytes_per_ns = 12.5, .flops_per_ns = 7.0});
  EXPECT_EQ(rates.bytes_per_ns, 12.5);
  EXPECT_EQ(rates.flops_per_ns, 7.0);
}

TEST(Rates, OfAMachineArePositive) {
  const MachineRates rates = find_rates(1, {});
  EXPECT_GT(rates.bytes_per_ns, 0);
  EXPECT_GT(rates.flops_per_ns, 0);
  EXPECT_TRUE(std::isfinite(rates.bytes_per_ns) && std::isfinite(rates.flops_per_ns));
}

}  // namespace
}  // namespace megamoe::cli
