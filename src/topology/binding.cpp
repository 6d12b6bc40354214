#include "topology/binding.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "topology/hwloc.hpp"

namespace megamoe {
namespace {

bool bind_this_thread(const CpuSet& cpus) {
  return host_handle() != nullptr &&
         hwloc_set_cpubind(host_handle(), bitmap_of(cpus).get(), HWLOC_CPUBIND_THREAD) == 0;
}

}  // namespace

CpuSet cpus_of_this_thread() {
  const Bitmap cpus(hwloc_bitmap_alloc());
  if (host_handle() == nullptr ||
      hwloc_get_cpubind(host_handle(), cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return {};
  }
  return numbers_of(cpus.get());
}

ThreadBinding::ThreadBinding(const CpuSet& cpus) {
  if (cpus.empty()) return;
  before_ = cpus_of_this_thread();
  if (!bind_this_thread(cpus)) before_.clear();
}

ThreadBinding::~ThreadBinding() {
  if (!before_.empty()) bind_this_thread(before_);
}

bool place_memory(std::span<std::byte> memory, const std::vector<int>& nodes) {
  if (host_handle() == nullptr) return false;
  return hwloc_set_area_membind(host_handle(), memory.data(), memory.size(), bitmap_of(nodes).get(),
                                nodes.size() == 1 ? HWLOC_MEMBIND_BIND : HWLOC_MEMBIND_INTERLEAVE,
                                HWLOC_MEMBIND_BYNODESET) == 0;
}

bool can_place_memory() {
  const std::vector<int> nodes = host_topology().nodes();
  if (nodes.empty()) return false;
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool placed = place_memory({static_cast<std::byte*>(page), bytes}, {nodes.front()});
  munmap(page, bytes);
  return placed;
}

}  // namespace megamoe
