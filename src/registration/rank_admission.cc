#include "src/registration/rank_admission.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/reception.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kMagic = 0x636f6d6d706f6f6c;  // "commpool"
// Beside the ranks that are to come: port scans and connections of ranks that tried twice.
constexpr size_t kStrangers = 64;

struct Challenge {
  uint64_t magic = kMagic;
  HashKey nonce{};
};

struct Hello {
  HashKey nonce{};
  uint64_t rank = 0;
  uint64_t lane = 0;
  uint64_t proof = 0;
};

enum class Prover : uint64_t { kRank = 1, kRankZero = 2 };

// What `prover` shows of its knowledge of the key, on this connection alone.
uint64_t Proof(const HashKey& key, Prover prover, const Challenge& challenge, const Hello& hello) {
  const std::array<uint64_t, 7> statement = {static_cast<uint64_t>(prover),
                                             challenge.nonce[0],
                                             challenge.nonce[1],
                                             hello.nonce[0],
                                             hello.nonce[1],
                                             hello.rank,
                                             hello.lane};
  return KeyedHash(key, statement.data(), sizeof(statement));
}

Result<std::string> NewChallenge() {
  Result<HashKey> nonce = RandomKey();
  if (!nonce.ok()) return nonce.status();
  const Challenge challenge{kMagic, *nonce};
  return std::string(reinterpret_cast<const char*>(&challenge), sizeof(challenge));
}

template <typename Message>
Message ReadAs(const std::string& bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// The connections to rank 0, with the rank that each has proved to be.
class RanksToCome {
 public:
  explicit RanksToCome(const AdmissionOptions& options) : options_(options), lanes_(options.lanes) {
    for (std::vector<Connection>& lane : lanes_) lane.resize(others());
  }

  bool complete() const { return admitted_ == lanes_.size() * others(); }
  std::vector<std::vector<Connection>> Take() { return std::move(lanes_); }

  // "1 3", or "1 3 and 200 others".
  std::string Missing() const {
    constexpr size_t kNamed = 16;
    std::vector<size_t> missing;
    for (size_t index = 0; index < others(); ++index) {
      const bool here =
          std::all_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return lane[index].valid(); });
      if (!here) missing.push_back(index + 1);
    }
    return SomeOf(missing, kNamed, " ");
  }

  // Who cannot prove to be a rank goes without an answer. A rank that comes again has given its first connection up.
  void Admit(Caller caller) {
    const Challenge challenge = ReadAs<Challenge>(caller.challenge);
    const Hello hello = ReadAs<Hello>(caller.hello);
    const bool is_rank = hello.proof == Proof(options_.key, Prover::kRank, challenge, hello) && hello.rank >= 1 &&
                         hello.rank <= others() && hello.lane < lanes_.size();
    if (!is_rank) return;
    const uint64_t welcome = Proof(options_.key, Prover::kRankZero, challenge, hello);
    if (!caller.connection.Send(&welcome, sizeof(welcome), DeadlineAfter({})).ok()) return;
    Connection& place = lanes_[hello.lane][hello.rank - 1];
    if (!place.valid()) ++admitted_;
    place = std::move(caller.connection);
  }

 private:
  size_t others() const { return static_cast<size_t>(options_.ranks - 1); }

  const AdmissionOptions& options_;
  std::vector<std::vector<Connection>> lanes_;
  size_t admitted_ = 0;
};

Status NotAllCame(const std::string& address, const std::string& missing, const Status& last) {
  return Status(last.code(), "agreement channel: these ranks did not connect to " + address + ": " + missing + " (" +
                                 last.message() +
                                 "): is the network between them open? COMMPOOL_INTERFACE names the interface to use");
}

// One attempt: the connection, or nothing where rank 0 closed it, which it does with callers that it has no room for.
Result<std::optional<Connection>> TryToJoin(const AdmissionOptions& options, size_t lane, const std::string& address,
                                            Deadline deadline) {
  const auto again = [](const Status& status) -> Result<std::optional<Connection>> {
    if (status.code() == StatusCode::kRemoteFailure) return std::optional<Connection>();
    return status;
  };
  Result<Connection> connection = Connect(address, deadline);
  if (!connection.ok()) return connection.status();
  Challenge challenge;
  if (Status status = connection->Receive(&challenge, sizeof(challenge), deadline); !status.ok()) return again(status);
  Result<HashKey> nonce = RandomKey();
  if (!nonce.ok()) return nonce.status();
  Hello hello{*nonce, static_cast<uint64_t>(options.rank), lane, 0};
  hello.proof = Proof(options.key, Prover::kRank, challenge, hello);
  if (Status status = connection->Send(&hello, sizeof(hello), deadline); !status.ok()) return again(status);
  uint64_t welcome = 0;
  if (Status status = connection->Receive(&welcome, sizeof(welcome), deadline); !status.ok()) return again(status);
  if (challenge.magic != kMagic || welcome != Proof(options.key, Prover::kRankZero, challenge, hello)) {
    return Status(StatusCode::kDisagreement, "what listens at " + address + " is not rank 0 of this pool");
  }
  return std::optional<Connection>(std::move(*connection));
}

}  // namespace

AdmittedRanks AdmitRanks(const AdmissionOptions& options, Listener listener) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  RanksToCome ranks(options);
  const size_t connections = options.lanes * static_cast<size_t>(options.ranks - 1);
  Reception reception(std::move(listener), {sizeof(Hello), connections + kStrangers, NewChallenge});
  while (!ranks.complete()) {
    Result<Caller> caller = reception.Next(deadline);
    if (!caller.ok()) {
      Status status = NotAllCame(reception.address(), ranks.Missing(), caller.status());
      return {ranks.Take(), std::move(status)};
    }
    ranks.Admit(std::move(*caller));
  }
  return {ranks.Take(), Status()};
}

Result<std::vector<Connection>> JoinRankZero(const AdmissionOptions& options, const std::string& address) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  std::vector<Connection> lanes;
  std::chrono::milliseconds pause{1};
  while (lanes.size() < options.lanes) {
    Result<std::optional<Connection>> connection = TryToJoin(options, lanes.size(), address, deadline);
    if (!connection.ok()) return connection.status().under("rank 0");
    if (*connection) {
      lanes.push_back(std::move(**connection));
      continue;
    }
    if (DeadlineAfter(pause) >= deadline) {
      return Status(StatusCode::kDeadlineExceeded, "rank 0 let nobody in at " + address + " before the deadline");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  return lanes;
}

}  // namespace commpool::internal
