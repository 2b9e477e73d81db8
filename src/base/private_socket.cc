#include "src/base/private_socket.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace commpool::internal {

namespace {

// All private sockets of the process. A global, because fork's handlers take no argument. A fork waits while a socket
// is made or closed, so the list has every socket.
class PrivateSockets {
 public:
  // Never destroyed: sockets may be closed after static objects have ended.
  static PrivateSockets& Get() {
    static auto* const sockets = new PrivateSockets;
    return *sockets;
  }

  template <typename Make>
  FileDescriptor Hold(const Make& make) {
    const std::lock_guard lock(mutex_);
    if (const int error = Prepare(); error != 0) {
      errno = error;
      return FileDescriptor();
    }
    FileDescriptor made = make();
    if (made.valid()) held_.push_back(made.get());
    return made;
  }

  void Close(FileDescriptor descriptor) {
    const std::lock_guard lock(mutex_);
    const auto place = std::find(held_.begin(), held_.end(), descriptor.get());
    if (place != held_.end()) {
      *place = held_.back();
      held_.pop_back();
    }
    const FileDescriptor closing = std::move(descriptor);
  }

 private:
  // Makes room for one more. Returns an errno, or 0.
  int Prepare() {
    try {
      if (held_.size() == held_.capacity()) held_.reserve(std::max<size_t>(16, 2 * held_.size()));
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
    if (!installed_) {
      const int error = pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); }, LetGoInChild);
      if (error != 0) return error;
      installed_ = true;
    }
    return 0;
  }

  // Each descriptor's number becomes one of /dev/null. So when a copy of one of the parent's objects ends in the child,
  // it closes that, and not a file of the child. Nothing here may allocate: another thread may have held malloc's lock.
  static void LetGoInChild() {
    PrivateSockets& sockets = Get();
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int descriptor : sockets.held_) {
      if (nothing < 0 || dup3(nothing, descriptor, O_CLOEXEC) < 0) close(descriptor);
    }
    if (nothing >= 0) close(nothing);
    sockets.held_.clear();
    sockets.mutex_.unlock();
  }

  std::mutex mutex_;  // the innermost lock: nothing is locked under it
  std::vector<int> held_;
  bool installed_ = false;
};

}  // namespace

PrivateSocket PrivateSocket::Open() {
  return PrivateSocket(PrivateSockets::Get().Hold(
      [] { return FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }));
}

PrivateSocket PrivateSocket::Accept(int listener) {
  return PrivateSocket(PrivateSockets::Get().Hold(
      [listener] { return FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }));
}

PrivateSocket PrivateSocket::Adopt(FileDescriptor socket) {
  return PrivateSocket(PrivateSockets::Get().Hold([&socket] { return std::move(socket); }));
}

PrivateSocket::~PrivateSocket() {
  if (descriptor_.valid()) PrivateSockets::Get().Close(std::move(descriptor_));
}

}  // namespace commpool::internal
