// Which of many descriptors have something, or take something, without looking at all of them (epoll).
//
// Any thread adds, changes and removes; one at a time waits.
#ifndef COMMPOOL_SRC_REGISTRATION_READINESS_SET_H_
#define COMMPOOL_SRC_REGISTRATION_READINESS_SET_H_

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "commpool/status.h"
#include "src/base/file_descriptor.h"
#include "src/base/host_reserve.h"
#include "src/base/socket.h"

namespace commpool::internal {

enum class Interest : uint32_t {
  kInput = EPOLLIN,                       // bytes to read, or the end
  kInputAndOutput = EPOLLIN | EPOLLOUT,   // also room to write
  kEnd = uint32_t{EPOLLRDHUP} | EPOLLET,  // that the peer has ended, and no bytes; told once
};

class ReadinessSet {
 public:
  // kOutOfMemory where the system has no descriptor left.
  static Result<ReadinessSet> Make();

  // `tag` comes back where the descriptor is ready.
  Status Add(int descriptor, Interest interest, size_t tag);
  void Change(int descriptor, Interest interest, size_t tag);
  void Remove(int descriptor);

  // Makes a wait return at once, this one or the next.
  void Wake();

  // The tags that are ready; none where the deadline passed or it was woken.
  ReservedVector<size_t> Wait(Deadline deadline);

 private:
  ReadinessSet(FileDescriptor set, FileDescriptor wake) : set_(std::move(set)), wake_(std::move(wake)) {}

  FileDescriptor set_;   // an epoll
  FileDescriptor wake_;  // an eventfd in it
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_READINESS_SET_H_
