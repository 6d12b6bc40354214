#include "cpu/worker_pool.hpp"

#include <system_error>

#include "base/check.hpp"

namespace megamoe {
namespace {

/// Waits until `word` no longer holds `old`: a short spin, since a call's phases follow each other
/// within microseconds, then sleep.
template <class T>
T wait_for_change(const std::atomic<T>& word, T old) {
  for (int spin = 0; spin < 200; ++spin) {
    const T now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    if (spin >= 100) std::this_thread::yield();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

WorkerPool::WorkerPool(std::int64_t threads) : errors_(static_cast<std::size_t>(threads)) {
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (std::int64_t worker = 1; worker < threads; ++worker) {
      threads_.emplace_back([this, worker] { serve(worker); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    end_threads();
    fail(ErrorCode::io,
         "a rank's {} workers need {} threads of their own, and the system refused the one after "
         "{}: {}: lower the number of workers, or raise the limits of processes and address space "
         "(ulimit -u, ulimit -v)",
         threads, threads - 1, started, error.code().message());
  }
}

WorkerPool::~WorkerPool() {
  end_threads();
}

void WorkerPool::end_threads() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::int64_t workers, const std::function<void(std::int64_t)>& work) {
  work_ = &work;
  workers_ = workers;
  for (std::exception_ptr& error : errors_) error = nullptr;
  // Every thread answers, also those that have no part in this run: so that none can still be
  // looking at the last one.
  unfinished_.store(static_cast<std::int64_t>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_one(0);
  for (std::int64_t left = unfinished_.load(std::memory_order_acquire); left != 0;) {
    left = wait_for_change(unfinished_, left);
  }
  for (const std::exception_ptr& error : errors_) {
    if (error) std::rethrow_exception(error);
  }
}

void WorkerPool::run_one(std::int64_t worker) {
  if (worker >= workers_) return;
  try {
    (*work_)(worker);
  } catch (...) {
    errors_[static_cast<std::size_t>(worker)] = std::current_exception();
  }
}

void WorkerPool::serve(std::int64_t worker) {
  for (std::uint64_t seen = 0;;) {
    seen = wait_for_change(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    run_one(worker);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

}  // namespace megamoe
