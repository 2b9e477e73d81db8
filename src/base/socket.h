// TCP with deadlines: listeners and connections for the agreement channel and the emulated NCCL.
//
// Every wait is bounded, and every error names the address. IPv4. One thread at a time sends on a Connection and one
// receives; any thread may call Shutdown meanwhile. A lost peer is an error, never a signal.
#ifndef COMMPOOL_SRC_BASE_SOCKET_H_
#define COMMPOOL_SRC_BASE_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/base/file_descriptor.h"

namespace commpool::internal {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline DeadlineAfter(std::chrono::milliseconds wait) { return std::chrono::steady_clock::now() + wait; }
// The timeout for poll(): rounded up, so that a wait never ends early; 0 once the deadline has passed; at most an hour.
int PollWait(Deadline deadline);

// A TCP socket of this process alone: a child of fork() closes its copy before it does anything else.
//
// If a child, such as a data loader, kept its copy, the connection would stay open after the parent's death, and the
// peers would wait until their deadline. CLOEXEC does the same for exec(). Any thread.
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

class Connection {
 public:
  Connection() = default;
  // Takes a connected stream socket and makes it nonblocking.
  explicit Connection(PrivateSocket socket);
  explicit Connection(FileDescriptor socket) : Connection(PrivateSocket::Adopt(std::move(socket))) {}

  bool valid() const { return socket_.valid(); }
  int descriptor() const { return socket_.get(); }
  // Such as "10.77.0.2:51034", for messages.
  const std::string& peer() const { return peer_; }

  // Send or receive exactly `bytes`. kDeadlineExceeded where the deadline passes, kRemoteFailure where the peer closed.
  Status Send(const void* data, size_t bytes, Deadline deadline);
  Status Receive(void* data, size_t bytes, Deadline deadline);

  // Sends and receives at the same time: peers (two, or a ring) that all send first would block each other.
  static Status Exchange(Connection& to, const void* sent, size_t sent_bytes, Connection& from, void* received,
                         size_t received_bytes, Deadline deadline);

  // Ends both directions: waits in progress fail at once. The descriptor stays open.
  void Shutdown();

 private:
  PrivateSocket socket_;
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

  Result<Connection> Accept(Deadline deadline);
  // The next caller in the queue, or nothing. kOutOfMemory where descriptors or memory lack; the caller stays in the
  // queue.
  Result<std::optional<Connection>> AcceptNow();

  // Makes Accept fail from now on, even where another thread waits in it.
  void Shutdown();

 private:
  PrivateSocket socket_;
  std::string address_;
  std::string why_local_;
};

struct ReceptionOptions {
  size_t hello_bytes = 0;                          // length of a caller's first words
  size_t most_silent = 64;                         // at least 1
  std::function<Result<std::string>()> challenge;  // what we tell a caller first; may be empty
};

struct Caller {
  Connection connection;
  std::string challenge;  // what we told the caller
  std::string hello;      // what the caller said: not to be trusted yet
};

// Accepts connections on a port that strangers can reach too. Next() returns a caller once it has sent its first words.
//
// A silent caller delays nobody. At most `most_silent` may wait; when one more comes, the one that is silent longest is
// dropped. Where the process runs out of descriptors, silent callers are dropped too, and the port stays open. One
// thread at a time.
class Reception {
 public:
  Reception(Listener listener, ReceptionOptions options)
      : listener_(std::move(listener)), options_(std::move(options)) {}

  const std::string& address() const { return listener_.address(); }

  // The next caller that has said hello. kDeadlineExceeded where there is none.
  Result<Caller> Next(Deadline deadline);

 private:
  // Reads what silent callers have sent.
  void Listen();
  // Accepts all callers in the queue.
  Status AcceptAll();
  Status Greet(Connection connection);
  // Drops the caller that has been silent longest, where more than `room` are silent. Returns whether it did.
  bool DropTheSilent(size_t room);
  void Wait(Deadline deadline);

  Listener listener_;
  const ReceptionOptions options_;
  std::deque<Caller> silent_;  // the one silent longest first
  std::deque<Caller> spoken_;
  Status out_of_room_;  // the last reason why nobody could be accepted
};

// Connects; tries again until the deadline while the port refuses. kInvalidArgument for an address unlike
// "1.2.3.4:567".
Result<Connection> Connect(const std::string& address, Deadline deadline);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_SOCKET_H_
