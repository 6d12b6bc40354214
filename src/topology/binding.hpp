// Threads and memory kept near each other. Whatever the system refuses costs speed alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "topology/topology.hpp"

namespace megamoe {

/// The processors that the calling thread may use; empty where the system does not say.
CpuSet cpus_of_this_thread();

/// Keeps the calling thread, and the threads that it starts meanwhile, on processors until the end
/// of a scope; then the calling thread has its own mask again. For no processors does nothing.
class ThreadBinding {
 public:
  explicit ThreadBinding(const CpuSet& cpus);
  ~ThreadBinding();
  ThreadBinding(const ThreadBinding&) = delete;
  ThreadBinding& operator=(const ThreadBinding&) = delete;

 private:
  CpuSet before_;
};

/// Asks that the pages of `memory` (whole pages, not touched yet) lie on this node; on several, in
/// turn. false: the system refused.
bool place_memory(std::span<std::byte> memory, const std::vector<int>& nodes);

/// Whether it does so for a page on the host's first node.
bool can_place_memory();

}  // namespace megamoe
