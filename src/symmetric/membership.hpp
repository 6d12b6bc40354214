// Who of a process group is there: a page that all ranks share, and a lock per rank on its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symmetric/file_descriptor.hpp"
#include "symmetric/mapping.hpp"

namespace megamoe {

/// Each rank holds a POSIX record lock on its byte of the file as long as its process lives: the
/// kernel drops it with the process, before the process is reaped. A process has one descriptor of
/// the file and plays one rank, since closing any descriptor of the file would drop the lock.
class Membership {
 public:
  /// The file for a new group, made by one rank and passed to all.
  static FileDescriptor make_file(int ranks);

  /// Enters: takes the lock, then says so on the page. Throws Error{io}.
  Membership(FileDescriptor file, int ranks, int rank);

  /// Leaves. A forked copy of the owner leaves nothing.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// "rank 2 (process 4711) died", "rank 2 left the group", or nothing. A rank that has not entered
  /// yet is not lost. Any thread.
  std::optional<std::string> lost(int rank) const;

  /// Says on the page that this rank has come to the meeting of this number; they count from 1.
  void come_to(std::uint64_t meeting);
  /// The ranks that have not come to it.
  std::vector<int> missing_at(std::uint64_t meeting) const;

 private:
  struct Entry;
  Entry& entry(int rank) const;
  bool lock_is_held(int rank) const;

  FileDescriptor file_;
  Mapping page_;
  int ranks_;
  int rank_;
  int owner_;  // process
};

}  // namespace megamoe
