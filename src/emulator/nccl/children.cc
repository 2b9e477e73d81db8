// The part of a communicator that makes others from it, and that ends early before a shrink.
#include <algorithm>
#include <cstring>
#include <string>

#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/exchange.h"
#include "src/emulator/nccl/log.h"

namespace commpool::internal::emulated_nccl {

namespace {

struct SplitMessage {
  int32_t color = 0;
  int32_t key = 0;
};

struct ResizeMessage {
  uint64_t fingerprint = 0;  // of everything that must be equal on all ranks
  uint64_t has_id = 0;
  ncclUniqueId id = {};
};

template <typename T>
Message Pack(const T& value) {
  Message message(sizeof value);
  std::memcpy(message.data(), &value, sizeof value);
  return message;
}

template <typename T>
T Unpack(const Message& message) {
  T value;
  std::memcpy(&value, message.data(), std::min(message.size(), sizeof value));
  return value;
}

// Each message begins with this mark of its call.
uint64_t TagOf(const char* call) { return std::hash<std::string>()(call); }

}  // namespace

std::vector<int> EmulatedCommunicator::AllRanks() const {
  std::vector<int> ranks(static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  return ranks;
}

Result<std::vector<Message>> EmulatedCommunicator::ExchangeControl(const char* call, const std::vector<int>& members,
                                                                   const Message& own) {
  if (RunsAlone()) return std::vector<Message>(static_cast<size_t>(ranks_), own);
  const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds()));
  const uint64_t tag = TagOf(call);
  Message tagged = Pack(tag);
  tagged.insert(tagged.end(), own.begin(), own.end());
  std::vector<Message> messages(static_cast<size_t>(ranks_));
  messages[static_cast<size_t>(rank_)] = own;
  for (const int peer : members) {
    if (peer == rank_) continue;
    if (Status status = SendMessage(control_.to(peer), tagged, deadline); !status.ok()) return NameRank(peer, status);
  }
  std::vector<int> missing;
  for (const int peer : members) {
    if (peer == rank_) continue;
    Message& message = messages[static_cast<size_t>(peer)];
    Status status = ReceiveMessage(control_.to(peer), message, deadline);
    // Skips messages of calls that an early end interrupted: nobody answers them.
    while (status.ok() && stopped_.load() && Unpack<uint64_t>(message) != tag) {
      status = ReceiveMessage(control_.to(peer), message, deadline);
    }
    if (status.code() == StatusCode::kDeadlineExceeded) {
      missing.push_back(peer);
      continue;
    }
    if (!status.ok()) return NameRank(peer, status);
    if (Unpack<uint64_t>(message) != tag) {
      const std::string details =
          "rank " + std::to_string(rank_) + " is in " + call + ", rank " + std::to_string(peer) + " in something else";
      GetDriver().commpoolEmulatorReport("collective host calls differ between ranks", details.c_str());
      return Status(StatusCode::kDisagreement, details);
    }
    message.erase(message.begin(), message.begin() + sizeof tag);
  }
  if (missing.empty()) return messages;
  return Status(StatusCode::kDeadlineExceeded, "rank " + JoinRanks(missing) + " did not arrive");
}

ncclResult_t EmulatedCommunicator::FailControl(const char* call, const Status& status) {
  if (!aborted_.load()) Fail(status, call);
  return status.code() == StatusCode::kDisagreement ? ncclInvalidUsage : ncclRemoteError;
}

// NCCL 2.28.9, src/init.cc: one communicator for each colour, its ranks ordered by key and then by rank. It inherits no
// registration.
ncclResult_t EmulatedCommunicator::AgreeOnSplit(int color, int key, Child* child) {
  if (async_error() != ncclSuccess) return async_error();
  const char* const call = "ncclCommSplit";
  if (RunsAlone() && color != NCCL_SPLIT_NOCOLOR) {
    COMMPOOL_NCCL_WARN("%s : nobody knows the colours of absent ranks (ranks=one): make the communicator by an id",
                       call);
    return ncclInvalidUsage;
  }
  const Result<std::vector<Message>> messages =
      ExchangeControl(call, AllRanks(), Pack(SplitMessage{.color = color, .key = key}));
  if (!messages.ok()) return FailControl(call, messages.status());
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto other = Unpack<SplitMessage>((*messages)[static_cast<size_t>(rank)]);
    if (other.color == color) members.emplace_back(other.key, rank);
  }
  std::sort(members.begin(), members.end());
  const bool joins = color != NCCL_SPLIT_NOCOLOR;
  const int first = joins ? members.front().second : 0;
  ResizeMessage own;
  if (joins && first == rank_) {
    Result<ncclUniqueId> id = MakeUniqueId();
    if (id.ok()) own = {.fingerprint = 0, .has_id = 1, .id = *id};
  }
  const Result<std::vector<Message>> ids = ExchangeControl(call, AllRanks(), Pack(own));
  if (!ids.ok()) return FailControl(call, ids.status());
  if (!joins) return ncclSuccess;
  const auto answer = Unpack<ResizeMessage>((*ids)[static_cast<size_t>(first)]);
  if (answer.has_id == 0) return ncclSystemError;
  child->ranks = static_cast<int>(members.size());
  child->rank = static_cast<int>(std::find(members.begin(), members.end(), std::pair(key, rank_)) - members.begin());
  child->id = answer.id;
  return ncclSuccess;
}

// NCCL 2.28.9, src/init.cc: the ranks that stay are numbered anew in their old order. The excluded ranks may be dead,
// and take no part.
ncclResult_t EmulatedCommunicator::AgreeOnShrink(const std::set<int>& excluded, int flags, Child* child) {
  const char* const call = "ncclCommShrink";
  if ((flags & NCCL_SHRINK_ABORT) != 0) Stop();
  if (async_error() != ncclSuccess) return async_error();
  std::vector<int> members;
  ResizeMessage own;
  for (const int rank : AllRanks()) {
    own.fingerprint = own.fingerprint * 2 + excluded.count(rank);
    if (excluded.count(rank) == 0) members.push_back(rank);
  }
  if (members.front() == rank_) {
    Result<ncclUniqueId> id = MakeUniqueId();
    if (!id.ok()) return ncclSystemError;
    own.id = *id;
  }
  const Result<std::vector<Message>> messages = ExchangeControl(call, members, Pack(own));
  if (!messages.ok()) return FailControl(call, messages.status());
  for (const int rank : members) {
    if (Unpack<ResizeMessage>((*messages)[static_cast<size_t>(rank)]).fingerprint == own.fingerprint) continue;
    const std::string details =
        "ranks " + std::to_string(rank_) + " and " + std::to_string(rank) + " leave out different ranks";
    GetDriver().commpoolEmulatorReport("collective host calls differ between ranks", details.c_str());
    return ncclInvalidUsage;
  }
  child->ranks = static_cast<int>(members.size());
  child->rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  child->id = Unpack<ResizeMessage>((*messages)[static_cast<size_t>(members.front())]).id;
  return ncclSuccess;
}

// NCCL's user guide, from 2.29.2: old ranks keep their numbers. One of them brings the id that new ranks join by.
ncclResult_t EmulatedCommunicator::AgreeOnGrow(int ranks, const ncclUniqueId* id, Child* child) {
  const char* const call = "ncclCommGrow";
  if (async_error() != ncclSuccess) return async_error();
  ResizeMessage own = {.fingerprint = static_cast<uint64_t>(ranks), .has_id = id != nullptr, .id = {}};
  if (id != nullptr) own.id = *id;
  const Result<std::vector<Message>> messages = ExchangeControl(call, AllRanks(), Pack(own));
  if (!messages.ok()) return FailControl(call, messages.status());
  int roots = 0;
  bool equal = true;
  for (const Message& message : *messages) {
    const auto other = Unpack<ResizeMessage>(message);
    equal = equal && other.fingerprint == own.fingerprint;
    if (other.has_id == 0) continue;
    ++roots;
    child->id = other.id;
  }
  if (!equal || roots != 1) {
    COMMPOOL_NCCL_WARN("ncclCommGrow : %d ranks brought an id (one must), or ranks count differently", roots);
    return ncclInvalidArgument;
  }
  child->ranks = ranks;
  child->rank = rank_;
  return ncclSuccess;
}

void EmulatedCommunicator::Stop() {
  stopped_.store(true);
  data_.Shutdown();
  queue_.Close();
  queue_.WaitUntilNothingRuns();
  async_error_.store(ncclSuccess);
}

ncclResult_t EmulatedCommunicator::Revoke() {
  Stop();
  return ncclSuccess;
}

}  // namespace commpool::internal::emulated_nccl
