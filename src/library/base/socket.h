// TCP with deadlines: listeners and connections for the agreement channel and the emulated NCCL.
//
// Every wait is bounded, and every error names the address. IPv4. One thread at a time sends on a Connection and one
// receives. A lost peer is an error, never a signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/function_ref.h"

namespace commpool::internal {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline DeadlineAfter(std::chrono::milliseconds wait) { return std::chrono::steady_clock::now() + wait; }
inline bool IsPast(Deadline deadline) { return std::chrono::steady_clock::now() > deadline; }
// The timeout for poll(): rounded up, so that a wait never ends early; 0 once the deadline has passed; at most an hour.
int PollWait(Deadline deadline);

// A descriptor of this process alone: a child of fork() closes its copy before it does anything else.
//
// If a child, such as a data loader, kept its copy of a socket, the connection would stay open after the parent's
// death, and the peers would wait until their deadline. A copy of exported memory would keep that memory after its
// owner gave it back. CLOEXEC does the same for exec(). Any thread.
class PrivateDescriptor {
 public:
  PrivateDescriptor() = default;
  // Nonblocking; a TCP socket, or one between processes of this machine that keeps the ends of messages. Invalid where
  // it fails; errno says why.
  enum class Kind { kTcp, kLocalMessages };
  static PrivateDescriptor OpenSocket(Kind kind = Kind::kTcp);
  static PrivateDescriptor Accept(int listener);
  // What `make` returns. A fork waits for it, so it takes no lock and calls no driver.
  static PrivateDescriptor Make(FunctionRef<FileDescriptor()> make);

  PrivateDescriptor(PrivateDescriptor&&) = default;
  PrivateDescriptor& operator=(PrivateDescriptor&&) = default;
  ~PrivateDescriptor();

  bool valid() const { return descriptor_.valid(); }
  int get() const { return descriptor_.get(); }

 private:
  explicit PrivateDescriptor(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

  FileDescriptor descriptor_;
};

// One direction of a transfer, and how far it is. Connection makes it.
struct Transfer {
  const bool sends;
  const int descriptor;
  char* data;
  size_t left;
  const std::string& peer;

  // Moves as much as the socket can take or has now. kRemoteFailure where the peer closed.
  Status MoveSome();
  // What poll() waits for.
  short events() const;
  Status DeadlinePassed() const;
};

class Connection {
 public:
  Connection() = default;
  // Takes a connected stream socket.
  explicit Connection(PrivateDescriptor socket);

  bool valid() const { return socket_.valid(); }
  int descriptor() const { return socket_.get(); }
  // Such as "10.77.0.2:51034", for messages.
  const std::string& peer() const { return peer_; }

  // Send or receive exactly `bytes`. kDeadlineExceeded where the deadline passes, kRemoteFailure where the peer closed.
  Status Send(const void* data, size_t bytes, Deadline deadline);
  Status Receive(void* data, size_t bytes, Deadline deadline);
  // The same, for who waits for several connections at a time.
  Transfer Sending(const void* data, size_t bytes) const;
  Transfer Receiving(void* data, size_t bytes) const {
    return {false, descriptor(), static_cast<char*>(data), bytes, peer_};
  }

 private:
  PrivateDescriptor socket_;
  std::string peer_;
};

class Listener {
 public:
  // Listens on a free port of the interface that other hosts reach. COMMPOOL_INTERFACE chooses it, else
  // NCCL_SOCKET_IFNAME: an IPv4 address, or prefixes as NCCL reads them ("eth,ib"; "=eth0" is the whole name; "^docker"
  // excludes). Where neither is set: the first interface that is up and neither loopback nor a container bridge. Where
  // none fits: 127.0.0.1.
  static Result<Listener> Open();
  static Result<Listener> OpenOn(const std::string& pattern);

  // "10.77.0.1:43211".
  const std::string& address() const { return address_; }
  // Why only this host reaches the address; empty where others do.
  const std::string& why_local() const { return why_local_; }
  int descriptor() const { return socket_.get(); }

  // The next caller in the queue, or nothing. kOutOfMemory where descriptors or memory lack; the caller stays in the
  // queue.
  Result<std::optional<Connection>> AcceptNow();

 private:
  PrivateDescriptor socket_;
  std::string address_;
  std::string why_local_;
};

// Connects; tries again until the deadline while the port refuses. kInvalidArgument for an address unlike
// "1.2.3.4:567".
Result<Connection> Connect(const std::string& address, Deadline deadline);

}  // namespace commpool::internal
