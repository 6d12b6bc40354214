#include "cli/progress.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/integers.hpp"

namespace megamoe::cli {
namespace {

// What passes before the line appears: shorter work needs none.
constexpr std::chrono::seconds kPatience{1};
constexpr std::chrono::milliseconds kTick{100};
constexpr std::int64_t kBarWidth = 24;

}  // namespace

SharedProgress::SharedProgress() {
  static_assert(std::atomic<const char*>::is_always_lock_free);
  void* memory = mmap(nullptr, sizeof(WorkProgress), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, "a page for the progress of the ranks is not to be had: {}",
         std::strerror(errno));
  }
  progress_.reset(new (memory) WorkProgress);
}

void SharedProgress::Unmap::operator()(WorkProgress* progress) const {
  munmap(progress, sizeof(WorkProgress));
}

Colour colour_of(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return Colour::none;
  return isatty(descriptor) == 1 ? Colour::ansi : Colour::none;
}

std::string progress_text(const char* what, std::int64_t done, std::int64_t total,
                          std::chrono::nanoseconds elapsed, Colour colour) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(elapsed).count();
  if (total <= 0) return fmt::format("{} {} s", what, seconds);
  const std::int64_t part = min64(done, total);
  const std::int64_t full = kBarWidth * part / total;
  const std::string bar(static_cast<std::size_t>(full), '#');
  const std::string rest(static_cast<std::size_t>(kBarWidth - full), '.');
  return fmt::format("{} [{}{}{}{}] {} % {} s", what, colour == Colour::ansi ? "\033[32m" : "", bar,
                     colour == Colour::ansi ? "\033[0m" : "", rest, 100 * part / total, seconds);
}

ProgressLine::ProgressLine() : shown_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressLine::show(const WorkProgress& progress) {
  const char* what = progress.what();
  if (!shown_ || what == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (what != what_) {
    clear();
    what_ = what;
    begin_ = now;
  }
  if (now - begin_ < kPatience) return;
  fmt::print(stderr, "\r\033[K{}",
             progress_text(what, progress.done(), progress.total(), now - begin_,
                           colour_of(STDERR_FILENO)));
  std::fflush(stderr);
  drawn_ = true;
}

Ticking::Ticking(const char* what) {
  if (isatty(STDERR_FILENO) != 1) return;
  progress_.enter(what, 0);
  thread_ = std::thread([this] {
    ProgressLine line;
    while (!over_.load(std::memory_order_relaxed)) {
      line.show(progress_);
      std::this_thread::sleep_for(kTick);
    }
  });
}

Ticking::~Ticking() {
  over_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

}  // namespace megamoe::cli
