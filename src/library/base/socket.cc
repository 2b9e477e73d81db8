#include "src/library/base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "src/library/base/interface.h"
#include "src/library/base/interruption.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// All private descriptors of the process. A global, because fork's handlers take no argument. A fork waits while one is
// made or closed, so the list has every one.
class PrivateDescriptors {
 public:
  // Never destroyed: descriptors may be closed after static objects have ended.
  static PrivateDescriptors& Get() {
    static auto* const descriptors = new PrivateDescriptors;
    return *descriptors;
  }

  FileDescriptor Hold(FunctionRef<FileDescriptor()> make) {
    const std::lock_guard lock(mutex_);
    if (const int error = Prepare(); error != 0) {
      errno = error;
      return FileDescriptor();
    }
    FileDescriptor made = make();
    if (made.valid()) {
      fcntl(made.get(), F_SETFD, FD_CLOEXEC);  // for what the driver makes
      held_.push_back(made.get());
    }
    return made;
  }

  void Close(FileDescriptor descriptor) {
    const std::lock_guard lock(mutex_);
    std::erase(held_, descriptor.get());
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
    PrivateDescriptors& own = Get();
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int descriptor : own.held_) {
      if (nothing < 0 || dup3(nothing, descriptor, O_CLOEXEC) < 0) close(descriptor);
    }
    if (nothing >= 0) close(nothing);
    own.held_.clear();
    own.mutex_.unlock();
  }

  std::mutex mutex_;  // the innermost lock: nothing is locked under it
  std::vector<int> held_;
  bool installed_ = false;
};

std::string FormatAddress(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> host = {};
  inet_ntop(AF_INET, &address.sin_addr, host.data(), host.size());
  return std::string(host.data()) + ":" + std::to_string(ntohs(address.sin_port));
}

std::optional<sockaddr_in> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string host(text.substr(0, colon));
  const std::string_view port_text = text.substr(colon + 1);
  uint16_t port = 0;
  const auto parsed = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (parsed.ec != std::errc() || parsed.ptr != port_text.data() + port_text.size() || port == 0) return std::nullopt;
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return std::nullopt;
  address.sin_port = htons(port);
  return address;
}

// Whether an error of accept() is about one caller or its network; then the next caller may be fine.
bool ConcernsOneCaller(int error) {
  constexpr std::array kErrors = {EINTR,     ECONNABORTED, EPROTO,       EPERM,      ENETDOWN,   ENOPROTOOPT,
                                  EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

// False when the deadline passed.
bool WaitReady(int descriptor, short events, Deadline deadline) {
  pollfd wait{descriptor, events, 0};
  WaitSlices slices(deadline);
  while (poll(&wait, 1, PollWait(slices.end())) <= 0) {
    if (slices.Over()) return false;
  }
  return true;
}

Status DeadlinePassed(const char* action, const std::string& address) {
  return DeadlineExceeded(action, " ", address, ": no answer before the deadline");
}

const char* ActionOf(const Transfer& transfer) { return transfer.sends ? "sending to" : "receiving from"; }

Status MoveAll(Transfer transfer, Deadline deadline) {
  while (true) {
    COMMPOOL_TRY(transfer.MoveSome());
    if (transfer.left == 0) return Status();
    if (!WaitReady(transfer.descriptor, transfer.events(), deadline)) return transfer.DeadlinePassed();
  }
}

// One attempt. Returns the connected socket, one that is not valid where the caller should try again, or the failure.
Result<PrivateDescriptor> ConnectOnce(const sockaddr_in& target, const std::string& name, Deadline deadline) {
  PrivateDescriptor connecting = PrivateDescriptor::OpenSocket();
  if (!connecting.valid()) return SystemFailure("connecting to " + name);
  int error = 0;
  if (connect(connecting.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (!WaitReady(connecting.get(), POLLOUT, deadline)) return DeadlinePassed("connecting to", name);
    socklen_t size = sizeof error;
    getsockopt(connecting.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == ECONNREFUSED || error == ECONNRESET) return PrivateDescriptor();
  if (error != 0) return SystemFailure("connecting to " + name, error);
  // On a free local port TCP can connect a socket to itself.
  sockaddr_in self = {};
  socklen_t size = sizeof self;
  getsockname(connecting.get(), reinterpret_cast<sockaddr*>(&self), &size);
  const bool to_itself = self.sin_port == target.sin_port && self.sin_addr.s_addr == target.sin_addr.s_addr;
  return to_itself ? PrivateDescriptor() : std::move(connecting);
}

}  // namespace

PrivateDescriptor PrivateDescriptor::Make(FunctionRef<FileDescriptor()> make) {
  return PrivateDescriptor(PrivateDescriptors::Get().Hold(make));
}

PrivateDescriptor PrivateDescriptor::OpenSocket(Kind kind) {
  const bool local = kind == Kind::kLocalMessages;
  const int type = (local ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
  return Make([&] { return FileDescriptor(socket(local ? AF_UNIX : AF_INET, type, 0)); });
}

PrivateDescriptor PrivateDescriptor::Accept(int listener) {
  return Make([&] { return FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); });
}

PrivateDescriptor::~PrivateDescriptor() {
  if (descriptor_.valid()) PrivateDescriptors::Get().Close(std::move(descriptor_));
}

int PollWait(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

Connection::Connection(PrivateDescriptor socket) : socket_(std::move(socket)) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  const bool named = getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  peer_ = named && address.sin_family == AF_INET ? FormatAddress(address) : "unnamed peer";
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Status Transfer::MoveSome() {
  while (left > 0) {
    const ssize_t count = sends ? send(descriptor, data, left, MSG_NOSIGNAL) : recv(descriptor, data, left, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0) return SystemFailure(std::string(ActionOf(*this)) + " " + peer);
    if (count == 0 && !sends) return RemoteFailure(ActionOf(*this), " ", peer, ": the peer closed");
    data += count;
    left -= static_cast<size_t>(count);
  }
  return Status();
}

short Transfer::events() const { return sends ? POLLOUT : POLLIN; }

Status Transfer::DeadlinePassed() const { return internal::DeadlinePassed(ActionOf(*this), peer); }

Transfer Connection::Sending(const void* data, size_t bytes) const {
  return {true, descriptor(), static_cast<char*>(const_cast<void*>(data)), bytes, peer_};
}

Status Connection::Send(const void* data, size_t bytes, Deadline deadline) {
  return MoveAll(Sending(data, bytes), deadline);
}

Status Connection::Receive(void* data, size_t bytes, Deadline deadline) {
  return MoveAll(Receiving(data, bytes), deadline);
}

Result<Listener> Listener::Open() { return OpenOn(InterfacePattern()); }

Result<Listener> Listener::OpenOn(const std::string& pattern) {
  HostAddress host = FindHostAddress(pattern);
  Listener listener;
  listener.why_local_ = std::move(host.why_local);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host.text.c_str(), &address.sin_addr);
  socklen_t size = sizeof address;
  listener.socket_ = PrivateDescriptor::OpenSocket();
  const int descriptor = listener.socket_.get();
  if (descriptor < 0 || bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return SystemFailure("listening on a free port of " + host.text);
  }
  listener.address_ = FormatAddress(address);
  return listener;
}

Result<std::optional<Connection>> Listener::AcceptNow() {
  while (true) {
    PrivateDescriptor accepted = PrivateDescriptor::Accept(socket_.get());
    if (accepted.valid()) return std::optional<Connection>(Connection(std::move(accepted)));
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK) return std::optional<Connection>();
    if (!ConcernsOneCaller(error)) return SystemFailure("accepting on " + address_, error);
  }
}

Result<Connection> Connect(const std::string& address, Deadline deadline) {
  const std::optional<sockaddr_in> target = ParseAddress(address);
  if (!target) return InvalidArgument("connecting to ", address, ": not an IPv4 address and port");
  int pause_milliseconds = 1;
  WaitSlices slices(deadline);
  while (true) {
    PrivateDescriptor connected = COMMPOOL_TRY(ConnectOnce(*target, address, deadline));
    if (connected.valid()) return Connection(std::move(connected));
    if (slices.Over()) {
      return DeadlineExceeded("connecting to ", address, ": the port refused until the deadline");
    }
    poll(nullptr, 0, std::min(PollWait(deadline), pause_milliseconds));
    pause_milliseconds = std::min(pause_milliseconds * 2, 50);
  }
}

}  // namespace commpool::internal
