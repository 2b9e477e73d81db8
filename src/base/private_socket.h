// A TCP socket of this process alone: a child of fork() closes its copy before it does anything else.
//
// If a child, such as a data loader, kept its copy, the connection would stay open after the parent's death, and the
// peers would wait until their deadline. CLOEXEC does the same for exec(). Any thread.
#ifndef COMMPOOL_SRC_BASE_PRIVATE_SOCKET_H_
#define COMMPOOL_SRC_BASE_PRIVATE_SOCKET_H_

#include <utility>

#include "src/base/file_descriptor.h"

namespace commpool::internal {

class PrivateSocket {
 public:
  PrivateSocket() = default;
  // Nonblocking. Invalid where it fails; errno says why.
  static PrivateSocket Open();
  static PrivateSocket Accept(int listener);
  // Takes an existing socket; closes it where that fails.
  static PrivateSocket Adopt(FileDescriptor socket);

  PrivateSocket(PrivateSocket&&) = default;
  PrivateSocket& operator=(PrivateSocket&&) = default;
  ~PrivateSocket();

  bool valid() const { return descriptor_.valid(); }
  int get() const { return descriptor_.get(); }

 private:
  explicit PrivateSocket(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

  FileDescriptor descriptor_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_PRIVATE_SOCKET_H_
