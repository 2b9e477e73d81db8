// Tells which of many descriptors have bytes, or room for bytes, without a look at each (epoll).
//
// Any thread may add, change and remove; one thread at a time may wait.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

enum class Interest : uint32_t {
  kInput = EPOLLIN,                       // bytes to read, or the end
  kInputAndOutput = EPOLLIN | EPOLLOUT,   // also room to write
  kEnd = uint32_t{EPOLLRDHUP} | EPOLLET,  // the end of the peer alone; told once
};

// A set of descriptors; it owns none of them. A home link has two.
class ReadinessSet {
 public:
  // kOutOfMemory where the system has no descriptor left.
  static Result<ReadinessSet> Make();

  // Wait returns `tag` when the descriptor is ready.
  Status Add(int descriptor, Interest interest, size_t tag);
  void Change(int descriptor, Interest interest, size_t tag);
  void Remove(int descriptor);

  // Lets the current wait return at once, or the next where nobody waits.
  void Wake();

  // The tags of the descriptors that are ready; none where the deadline passed or Wake was called.
  std::vector<size_t> Wait(Deadline deadline);

 private:
  ReadinessSet(FileDescriptor set, FileDescriptor wake) : set_(std::move(set)), wake_(std::move(wake)) {}

  FileDescriptor set_;   // an epoll
  FileDescriptor wake_;  // an eventfd in it
};

}  // namespace commpool::internal
