// Progress of work that lasts: a line on the terminal, and nothing where there is none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace megamoe::cli {

/// Where some work has got to. One writes, others may read at any time, also from another process.
class WorkProgress {
 public:
  /// `what` lives as long as the program; total 0: how much there is is not known.
  void enter(const char* what, std::int64_t total) {
    done_.store(0, std::memory_order_relaxed);
    total_.store(total, std::memory_order_relaxed);
    what_.store(what, std::memory_order_relaxed);
  }
  void advance() { done_.fetch_add(1, std::memory_order_relaxed); }

  const char* what() const { return what_.load(std::memory_order_relaxed); }  ///< null at first
  std::int64_t done() const { return done_.load(std::memory_order_relaxed); }
  std::int64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  std::atomic<const char*> what_{nullptr};
  std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> total_{0};
};

/// A WorkProgress that forked children share with their parent.
class SharedProgress {
 public:
  SharedProgress();
  WorkProgress& of_first() { return *progress_; }

 private:
  struct Unmap {
    void operator()(WorkProgress* progress) const;
  };
  std::unique_ptr<WorkProgress, Unmap> progress_;
};

enum class Colour { none, ansi };
/// Whether a stream of this process takes colours: a terminal, and NO_COLOR is not set.
Colour colour_of(int descriptor);

/// "packing weights 12 s", "bench [######....] 60 % 12 s".
std::string progress_text(const char* what, std::int64_t done, std::int64_t total,
                          std::chrono::nanoseconds elapsed, Colour colour);

/// The line on stderr: it appears when a work has lasted a second, and is gone with this.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether stderr is a terminal.
  bool is_shown() const { return shown_; }
  /// Draws; call it a few times a second.
  void show(const WorkProgress& progress);

 private:
  void clear();

  bool shown_;
  bool drawn_ = false;
  const char* what_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

/// Draws the line from a thread of its own, for a work that tells nothing of itself. Not before a
/// fork.
class Ticking {
 public:
  explicit Ticking(const char* what);
  ~Ticking();

 private:
  WorkProgress progress_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace megamoe::cli
