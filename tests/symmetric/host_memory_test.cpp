#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "symmetric/support.hpp"

namespace megamoe::testing_symmetric {
namespace {

namespace fs = std::filesystem;

/// Stands in for /proc and /sys/fs/cgroup.
class HostFiles {
 public:
  HostFiles() {
    std::string pattern = ::testing::TempDir() + "host_memory_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~HostFiles() { fs::remove_all(root_); }

  HostFiles& with(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
    return *this;
  }
  HostMemory read() const { return host_memory_below(root_ / "proc", root_ / "cgroup"); }

 private:
  fs::path root_;
};

const char* const kMeminfo = "MemTotal:  4000 kB\nMemFree:  100 kB\nMemAvailable:   1000 kB\n";

TEST(HostMemory, IsWhatTheKernelCallsAvailable) {
  const HostMemory memory = HostFiles().with("proc/meminfo", kMeminfo).read();
  EXPECT_EQ(memory.available_bytes, 1024000);
  EXPECT_EQ(memory.limited_by, "free memory of the host");
}

TEST(HostMemory, ACgroupOfVersion2LimitsIt) {
  const HostMemory memory = HostFiles()
                                .with("proc/meminfo", kMeminfo)
                                .with("proc/self/cgroup", "0::/a/b\n")
                                .with("cgroup/a/b/memory.max", "10000\n")
                                .with("cgroup/a/b/memory.current", "9000\n")
                                .with("cgroup/a/b/memory.stat", "anon 1\ninactive_file 500\n")
                                .read();
  EXPECT_EQ(memory.available_bytes, 1500);
  EXPECT_NE(memory.limited_by.find("cgroup"), std::string::npos);
}

TEST(HostMemory, AnAncestorOfTheCgroupLimitsIt) {
  const HostMemory memory = HostFiles()
                                .with("proc/meminfo", kMeminfo)
                                .with("proc/self/cgroup", "0::/a/b\n")
                                .with("cgroup/a/b/memory.max", "max\n")
                                .with("cgroup/a/b/memory.current", "9000\n")
                                .with("cgroup/a/memory.max", "20000\n")
                                .with("cgroup/a/memory.current", "15000\n")
                                .read();
  EXPECT_EQ(memory.available_bytes, 5000);
}

TEST(HostMemory, ACgroupOfVersion1LimitsIt) {
  const HostMemory memory = HostFiles()
                                .with("proc/meminfo", kMeminfo)
                                .with("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/c\n0::/\n")
                                .with("cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
                                .with("cgroup/memory/memory.usage_in_bytes", "100")
                                .with("cgroup/memory/c/memory.limit_in_bytes", "7000")
                                .with("cgroup/memory/c/memory.usage_in_bytes", "6000")
                                .with("cgroup/memory/c/memory.stat", "total_inactive_file 250\n")
                                .read();
  EXPECT_EQ(memory.available_bytes, 1250);
}

TEST(HostMemory, AGroupOverItsLimitHasNothingLeft) {
  const HostMemory memory = HostFiles()
                                .with("proc/meminfo", kMeminfo)
                                .with("proc/self/cgroup", "0::/\n")
                                .with("cgroup/memory.max", "10000")
                                .with("cgroup/memory.current", "12000")
                                .read();
  EXPECT_EQ(memory.available_bytes, 0);
}

TEST(HostMemory, FilesThatAreMissingOrBrokenLimitNothing) {
  const HostMemory memory = HostFiles().with("proc/self/cgroup", "garbage\n:\n0:\n").read();
  EXPECT_GT(memory.available_bytes, std::int64_t{1} << 60);
}

TEST(HostMemory, ThisHostHasSome) {
  EXPECT_GT(available_host_memory().available_bytes, 0);
}

TEST(HostMemory, TheNeedOfAllRanksTogetherDecides) {
  const HostMemory host{1000, "a test"};
  check_requests(std::vector<MemoryRequest>{{500, host}, {500, host}});
  EXPECT_TRUE(says(error_of([&] {
                     check_requests(std::vector<MemoryRequest>{{501, host}, {501, host}});
                   }),
                   ErrorCode::out_of_memory, {"2 rank(s)", "501", "1000", "a test"}));
}

TEST(HostMemory, PrivateNeedsOfAllRanksTogetherDecideAndAreNamed) {
  const HostMemory host{10 << 20, "a test"};
  const auto error = [&](std::int64_t first, std::int64_t second) {
    const std::vector<MemoryRequest> requests{{first, host}, {second, {20 << 20, "another"}}};
    return error_of([&] { check_private_requests(requests, "packed weights", "take fewer"); });
  };
  EXPECT_FALSE(error(4 << 20, 6 << 20));
  EXPECT_TRUE(says(error(4 << 20, 7 << 20), ErrorCode::out_of_memory,
                   {"packed weights", "2 rank(s)", "0.01 GiB", "a test", "take fewer"}));
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_TRUE(says(error(huge, huge), ErrorCode::out_of_memory, {"8589934592.00 GiB in all"}));
}

TEST(HostMemory, ANeedBeyond64BitsIsRefusedToo) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const HostMemory host{huge, "a test"};
  const std::vector<MemoryRequest> requests(8, {huge, host});
  EXPECT_TRUE(says(error_of([&] { check_requests(requests); }), ErrorCode::out_of_memory, {}));
}

}  // namespace
}  // namespace megamoe::testing_symmetric
