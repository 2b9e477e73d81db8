// A file descriptor that closes itself, and what it means that a call on descriptors failed.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "commpool/status.h"

namespace commpool::internal {

// kRemoteFailure where a connection ended; kOutOfMemory where memory, descriptors, the disk or a limit is exhausted.
inline StatusCode CodeOfError(int error, StatusCode other = StatusCode::kInternal) {
  for (const int ended : {EPIPE, ECONNRESET, ENOTCONN, ECONNABORTED}) {
    if (error == ended) return StatusCode::kRemoteFailure;
  }
  for (const int exhausted : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    if (error == exhausted) return StatusCode::kOutOfMemory;
  }
  return other;
}

// The failure of the system call that has just failed, or failed with that error: "making the folder: ...".
inline Status SystemFailure(const std::string& action, int error = errno, StatusCode other = StatusCode::kInternal) {
  return Status(CodeOfError(error, other), action + ": " + strerror(error));
}

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (valid()) close(descriptor_);
  }

  bool valid() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  // Hands the descriptor to the caller, who closes it.
  [[nodiscard]] int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

}  // namespace commpool::internal
