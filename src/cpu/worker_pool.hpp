// The threads of one rank. They sleep between calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace megamoe {

class WorkerPool {
 public:
  /// Starts `threads` - 1 threads: the caller of run() is worker 0. Throws Error{io} when the
  /// system refuses one.
  explicit WorkerPool(std::int64_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::int64_t threads() const { return static_cast<std::int64_t>(threads_.size()) + 1; }

  /// Runs work(w) for every w in [0, workers) at once, workers <= threads(), and returns when all
  /// have returned. Rethrows the exception of the lowest worker that threw. One call at a time.
  void run(std::int64_t workers, const std::function<void(std::int64_t)>& work);

 private:
  void serve(std::int64_t worker);
  void run_one(std::int64_t worker);
  void end_threads();

  std::vector<std::thread> threads_;
  std::vector<std::exception_ptr> errors_;
  const std::function<void(std::int64_t)>* work_ = nullptr;
  std::int64_t workers_ = 0;
  std::atomic<std::uint64_t> generation_{0};  // one more for each run and for the end
  std::atomic<std::int64_t> unfinished_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace megamoe
