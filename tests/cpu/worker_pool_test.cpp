// The threads of one rank.
#include "cpu/worker_pool.hpp"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

std::uint64_t mapped_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Ends the process: with 0 if a pool whose stacks do not fit is refused in words.
[[noreturn, maybe_unused]] void ask_for_more_stacks_than_fit() {
  const rlimit little{mapped_bytes() + (std::uint64_t{512} << 20), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &little);
  try {
    WorkerPool pool(1024);
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool named = error.code() == ErrorCode::io && text.find("1023 threads") != text.npos;
    std::_Exit(named ? 0 : 1);
  }
  std::_Exit(2);
}

TEST(WorkerPool, ThreadsThatTheSystemRefusesAreANamedErrorAndTheOthersEnd) {
#ifdef MEGAMOE_SANITIZED
  GTEST_SKIP() << "sanitizers need more address space than the test leaves";
#else
  // In a copy of the process, so that the limit ends with it.
  EXPECT_EXIT(ask_for_more_stacks_than_fit(), testing::ExitedWithCode(0), "");
#endif
}

}  // namespace
}  // namespace megamoe
