// A group: the ranks that run a layer together.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace megamoe {

struct GroupOptions {
  /// How long any wait for another rank may take before it is an error; zero: for ever.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

/// Where the processes of a group meet.
struct ProcessGroupOptions {
  int rank = 0;
  int ranks = 1;
  /// Any text without '/', the same on all ranks and used by no other group at the same time. It
  /// becomes a name in the abstract socket namespace of the host, so no file is ever made.
  std::string rendezvous;
  GroupOptions group;
};

class GroupState;

/// One rank's handle on its group. Copies share the membership; the rank leaves when the last copy
/// and the last Layer made with it are gone. Leaving waits for nobody.
///
/// Layers are made and called in the same order on every rank, each rank from one thread at a time.
class Group {
 public:
  /// A group of one rank.
  static Group single(const GroupOptions& options = {});

  /// Ranks that are threads of this process: use entry r from the thread that plays rank r.
  static std::vector<Group> threads(int ranks, const GroupOptions& options = {});

  /// Joins a group of processes of this host. Returns when all ranks have come.
  /// Throws Error{deadline} that names the ranks that did not.
  static Group processes(const ProcessGroupOptions& options);

  int rank() const;
  int ranks() const;

  /// For the library: what a Layer needs of its group.
  GroupState& state() const { return *state_; }

 private:
  explicit Group(std::shared_ptr<GroupState> state);
  std::shared_ptr<GroupState> state_;
};

}  // namespace megamoe
