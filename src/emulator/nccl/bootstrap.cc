#include "src/emulator/nccl/bootstrap.h"

#include <sys/socket.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "src/emulator/nccl/driver.h"
#include "src/library/base/reception.h"

namespace commpool::internal::emulated_nccl {

namespace {

constexpr uint64_t kMarker = 0x636f6d6d706f6f6c;  // every id of this library begins with it

struct IdContent {
  uint64_t marker;
  uint64_t magic;
  std::array<char, 64> address;
};
static_assert(sizeof(IdContent) <= NCCL_UNIQUE_ID_BYTES);

// The root's answer: an empty reason and the table of all ranks, or the reason why there is no table.
struct Answer {
  std::array<char, 256> reason = {};
};

// The first bytes on a connection between two ranks.
struct Hello {
  uint64_t magic;
  int32_t rank;
  int32_t channel;
};
constexpr int kDataChannel = 0;
constexpr int kControlChannel = 1;

template <size_t N>
void CopyText(const std::string& text, std::array<char, N>& target) {
  std::strncpy(target.data(), text.c_str(), N - 1);
}

IdContent ContentOf(const ncclUniqueId& id) {
  IdContent content;
  std::memcpy(&content, id.internal, sizeof content);
  return content;
}

// Owns the introductions of all ranks of one communicator, and answers them. A thread of MakeUniqueId runs it.
class Root {
 public:
  Root(Listener listener, uint64_t magic)
      : reception_(std::move(listener), {.hello_bytes = sizeof(PeerInfo), .challenge = {}}), magic_(magic) {}

  void Serve() {
    std::string reason;
    Deadline deadline = Deadline::max();  // no limit until the first rank comes: a program may use an id late
    while (reason.empty() && !Complete()) {
      Result<Caller> caller = reception_.Next(deadline);
      if (!caller.ok()) {
        reason = "of " + std::to_string(peers_.size()) + " ranks these did not join: " + Missing();
        break;
      }
      reason = Introduce(std::move(*caller));
      if (joined_ == 1 && deadline == Deadline::max()) {
        deadline = DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds()));
      }
    }
    AnswerAll(reason);
  }

 private:
  bool Complete() const { return !peers_.empty() && joined_ == peers_.size(); }

  // Takes one rank in. Returns what is wrong with it, or nothing.
  std::string Introduce(Caller caller) {
    PeerInfo peer;
    std::memcpy(&peer, caller.hello.data(), sizeof peer);
    if (peer.magic != magic_) return "";
    if (peers_.empty()) {
      peers_.resize(static_cast<size_t>(peer.ranks));
      connections_.resize(peers_.size());
    }
    const auto rank = static_cast<size_t>(peer.rank);
    const std::string name = "rank " + std::to_string(peer.rank);
    if (static_cast<size_t>(peer.ranks) != peers_.size() || rank >= peers_.size() || connections_[rank].valid()) {
      const bool twice = rank < peers_.size() && connections_[rank].valid();
      late_ = std::move(caller.connection);
      return twice ? name + " joined twice"
                   : name + " counts " + std::to_string(peer.ranks) + " ranks where others count " +
                         std::to_string(peers_.size());
    }
    peers_[rank] = peer;
    connections_[rank] = std::move(caller.connection);
    ++joined_;
    return "";
  }

  std::string Missing() const {
    std::string ranks;
    for (size_t rank = 0; rank < connections_.size(); ++rank) {
      if (!connections_[rank].valid()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    return ranks;
  }

  void AnswerAll(const std::string& reason) {
    const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds()));
    Answer answer;
    CopyText(reason, answer.reason);
    connections_.push_back(std::move(late_));
    for (Connection& connection : connections_) {
      if (!connection.valid()) continue;
      Status sent = connection.Send(&answer, sizeof answer, deadline);
      // Its peers notice by themselves that a rank is gone.
      if (sent.ok() && reason.empty())
        sent = connection.Send(peers_.data(), peers_.size() * sizeof(PeerInfo), deadline);
    }
  }

  Reception reception_;
  const uint64_t magic_;
  std::vector<PeerInfo> peers_;
  std::vector<Connection> connections_;
  Connection late_;
  size_t joined_ = 0;
};

Result<std::vector<PeerInfo>> Introduce(const ncclUniqueId& id, const PeerInfo& own, Deadline deadline) {
  const IdContent content = ContentOf(id);
  Result<Connection> root = Connect(content.address.data(), deadline);
  if (!root.ok()) return root.status();
  Answer answer;
  if (Status status = root->Send(&own, sizeof own, deadline); !status.ok()) return status;
  if (Status status = root->Receive(&answer, sizeof answer, deadline); !status.ok()) return status;
  if (answer.reason[0] != '\0') return Status(StatusCode::kDisagreement, answer.reason.data());
  std::vector<PeerInfo> peers(static_cast<size_t>(own.ranks));
  if (Status status = root->Receive(peers.data(), peers.size() * sizeof(PeerInfo), deadline); !status.ok()) {
    return status;
  }
  return peers;
}

// Every rank connects to lower ranks and accepts higher ones.
Status ConnectMeshes(Listener listener, const PeerInfo& own, Membership& membership, Deadline deadline) {
  for (int rank = 0; rank < own.rank; ++rank) {
    for (const int channel : {kDataChannel, kControlChannel}) {
      const Hello hello{own.magic, own.rank, channel};
      Result<Connection> connection = Connect(membership.peers[static_cast<size_t>(rank)].address.data(), deadline);
      if (!connection.ok()) return connection.status();
      if (Status status = connection->Send(&hello, sizeof hello, deadline); !status.ok()) return status;
      (channel == kDataChannel ? membership.data : membership.control).to(rank) = std::move(*connection);
    }
  }
  Reception reception(std::move(listener), {.hello_bytes = sizeof(Hello), .challenge = {}});
  for (int expected = 2 * (own.ranks - 1 - own.rank); expected > 0;) {
    Result<Caller> caller = reception.Next(deadline);
    if (!caller.ok()) return caller.status();
    Hello hello;
    std::memcpy(&hello, caller->hello.data(), sizeof hello);
    // This caller is no rank of ours. A port scan must not end a job.
    if (hello.magic != own.magic || hello.rank <= own.rank || hello.rank >= own.ranks) continue;
    (hello.channel == kDataChannel ? membership.data : membership.control).to(hello.rank) =
        std::move(caller->connection);
    --expected;
  }
  return Status();
}

// Ranks that no process runs: each like this one, on a host of its own.
std::vector<PeerInfo> AbsentPeers(const PeerInfo& own) {
  std::vector<PeerInfo> peers(static_cast<size_t>(own.ranks), own);
  for (int rank = 0; rank < own.ranks; ++rank) {
    PeerInfo& peer = peers[static_cast<size_t>(rank)];
    peer.rank = rank;
    peer.host += static_cast<uint64_t>(rank - own.rank);
  }
  return peers;
}

}  // namespace

void Mesh::Shutdown() {
  for (const Connection& connection : connections_) {
    if (connection.valid()) shutdown(connection.descriptor(), SHUT_RDWR);
  }
}

Result<ncclUniqueId> MakeUniqueId() {
  Result<Listener> listener = Listener::Open();
  if (!listener.ok()) return listener.status();
  std::random_device random;
  IdContent content = {.marker = kMarker, .magic = (uint64_t{random()} << 32 | random()) | 1, .address = {}};
  CopyText(listener->address(), content.address);
  ncclUniqueId id = {};
  std::memcpy(id.internal, &content, sizeof content);
  std::thread([root = Root(std::move(*listener), content.magic)]() mutable { root.Serve(); }).detach();
  return id;
}

uint64_t MagicOf(const ncclUniqueId& id) {
  const IdContent content = ContentOf(id);
  return content.marker == kMarker ? content.magic : 0;
}

Result<Membership> Join(const ncclUniqueId& id, PeerInfo own, Deadline deadline) {
  Result<Listener> listener = Listener::Open();
  if (!listener.ok()) return listener.status();
  own.magic = MagicOf(id);
  if (RunsAlone()) return Membership{.peers = AbsentPeers(own), .data = {}, .control = {}};
  CopyText(listener->address(), own.address);
  Result<std::vector<PeerInfo>> peers = Introduce(id, own, deadline);
  if (!peers.ok()) return peers.status();
  Membership membership{.peers = std::move(*peers), .data = Mesh(own.ranks), .control = Mesh(own.ranks)};
  if (Status status = ConnectMeshes(std::move(*listener), own, membership, deadline); !status.ok()) return status;
  return membership;
}

}  // namespace commpool::internal::emulated_nccl
