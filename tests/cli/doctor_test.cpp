// What `doctor` makes of what it finds.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/findings.hpp"

namespace megamoe::cli {
namespace {

namespace fs = std::filesystem;

/// A folder in place of /sys, gone with this.
class Sys {
 public:
  Sys() : path_(fs::temp_directory_path() / ("megamoe-sys-" + std::to_string(getpid()))) {
    fs::create_directories(path_ / "kernel/mm/transparent_hugepage");
    fs::create_directories(path_ / "devices/system/node");
  }
  ~Sys() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void huge_pages(const char* modes) const {
    std::ofstream(path_ / "kernel/mm/transparent_hugepage/enabled") << modes << '\n';
  }

 private:
  fs::path path_;
};

TEST(Doctor, FindsWhatTheMainJobNeedsWhereTheTestsRun) {
  for (const Finding& finding :
       {look_at_main_job(), look_at_locks(), look_at_memfd(), look_at_sockets()}) {
    EXPECT_EQ(finding.verdict, Verdict::fine) << finding.what << ": " << finding.found;
  }
}

TEST(Doctor, HugePagesThatAreOffAreALimit) {
  const Sys sys;
  sys.huge_pages("always [madvise] never");
  EXPECT_EQ(look_at_huge_pages(sys.path()).verdict, Verdict::fine);
  sys.huge_pages("always madvise [never]");
  EXPECT_EQ(look_at_huge_pages(sys.path()).verdict, Verdict::limited);
  EXPECT_NE(look_at_huge_pages(sys.path()).advice, "");
  EXPECT_EQ(look_at_huge_pages(sys.path() / "none").verdict, Verdict::limited);
}

TEST(Doctor, SeveralNumaNodesAreFineWhereMemoryCanBePlaced) {
  const HostTopology one = synthetic_topology("core:4 pu:1");
  const HostTopology two = synthetic_topology("numa:2 core:4 pu:1");
  EXPECT_EQ(look_at_numa(one, false).verdict, Verdict::fine);
  EXPECT_EQ(look_at_numa(two, true).verdict, Verdict::fine);
  EXPECT_NE(look_at_numa(two, true).found.find("node 1 with 4 cores"), std::string::npos);
  EXPECT_EQ(look_at_numa(two, false).verdict, Verdict::limited);
  EXPECT_EQ(look_at_numa({}, false).verdict, Verdict::fine);
}

TEST(Doctor, LittleMemoryAndNoShmAreNoFailure) {
  EXPECT_EQ(look_at_memory({std::int64_t{64} << 20, "a test"}).verdict, Verdict::limited);
  EXPECT_EQ(look_at_memory({std::int64_t{64} << 30, "a test"}).verdict, Verdict::fine);
  EXPECT_EQ(look_at_shm("/no/such/folder").verdict, Verdict::fine);
}

TEST(Doctor, SaysWhatIsMissingForCudaAndThatTheMainJobRunsWithoutIt) {
  using device::DeviceFacts;
  const auto verdict = [](const device::DriverFacts& driver, const std::vector<DeviceFacts>& all) {
    const Finding finding = look_at_driver(driver, all);
    EXPECT_EQ(finding.advice.empty(), finding.verdict == Verdict::fine) << finding.found;
    return finding.verdict;
  };
  DeviceFacts hopper{.device = 0, .name = "a Hopper", .major = 9, .usable = true};
  DeviceFacts other{.device = 1, .name = "another", .major = 8, .minor = 6};
  EXPECT_EQ(verdict({.built = false}, {}), Verdict::limited);
  EXPECT_EQ(verdict({.built = true, .runtime = 13000}, {}), Verdict::limited);
  EXPECT_EQ(verdict({.built = true, .driver = 13000, .runtime = 13000}, {other}), Verdict::limited);
  EXPECT_EQ(verdict({.built = true, .driver = 12080, .runtime = 13000}, {hopper}),
            Verdict::limited);
  EXPECT_EQ(verdict({.built = true, .driver = 13000, .runtime = 13000}, {hopper, other}),
            Verdict::fine);
  EXPECT_EQ(look_at_device(hopper).verdict, Verdict::fine);
  EXPECT_EQ(look_at_device(other).verdict, Verdict::limited);
  hopper.peers = {1, 2};
  hopper.partitions = device::PartitionFacts{8, 8};
  EXPECT_NE(look_at_device(hopper).found.find("1, 2"), std::string::npos);
  EXPECT_NE(look_at_device(hopper).found.find("from 8 in steps of 8"), std::string::npos);
}

}  // namespace
}  // namespace megamoe::cli
