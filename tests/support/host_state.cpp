#include "support/host_state.hpp"

#include <filesystem>
#include <fstream>

namespace megamoe::test {
namespace {

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

}  // namespace

HostState host_state(const std::string& rendezvous) {
  HostState state;
  for (const std::string& name : names_in("/dev/shm")) {
    if (name.find("megamoe") != std::string::npos) state.shared_memory.insert(name);
  }
  state.descriptors = names_in("/proc/self/fd").size();
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find(rendezvous);
    if (at != std::string::npos) state.sockets.insert(line.substr(at));
  }
  return state;
}

std::string difference(const HostState& before, const HostState& after) {
  std::string text;
  for (const std::string& name : after.shared_memory) {
    if (before.shared_memory.count(name) == 0) text += "/dev/shm/" + name + " was left; ";
  }
  for (const std::string& name : after.sockets) {
    if (before.sockets.count(name) == 0) text += "socket " + name + " was left; ";
  }
  if (before.descriptors != after.descriptors) {
    text += std::to_string(after.descriptors) + " descriptors are open, " +
            std::to_string(before.descriptors) + " were before";
  }
  return text;
}

}  // namespace megamoe::test
