// What `doctor` looks at, one finding each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "device/gpu.hpp"
#include "symmetric/host_memory.hpp"
#include "topology/topology.hpp"

namespace megamoe::cli {

/// fine: nothing to do. limited: the main job runs, some way or size of it does not. missing: the
/// main job cannot run.
enum class Verdict { fine, limited, missing };
std::string_view name_of(Verdict verdict);

struct Finding {
  std::string what;
  std::string found;
  Verdict verdict = Verdict::fine;
  std::string advice;  ///< what to do; empty for fine
};

/// A small layer over two rank processes against the reference. Forks: not after a thread started.
Finding look_at_main_job();

Finding look_at_instructions();
Finding look_at_cores();
Finding look_at_memory(const HostMemory& memory);
/// Nothing of the command lives there.
Finding look_at_shm(const std::filesystem::path& folder);
Finding look_at_memfd();
Finding look_at_sockets();
/// A child must see the parent's lock: it is how a dead rank is noticed.
Finding look_at_locks();
/// `sys` and the like in place of /sys.
Finding look_at_huge_pages(const std::filesystem::path& sys);
/// places_memory: whether the system lets a process say on which node its memory lies.
Finding look_at_numa(const HostTopology& host, bool places_memory);
Finding look_at_open_files();
Finding look_at_locked_memory();
Finding look_at_driver(const device::DriverFacts& driver,
                       const std::vector<device::DeviceFacts>& devices);
Finding look_at_device(const device::DeviceFacts& facts);
/// Build and driver, then every device. Starts the driver: not before a fork that needs it.
std::vector<Finding> look_at_cuda();

}  // namespace megamoe::cli
