#include "src/registration/rank_admission.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/reception.h"
#include "src/base/try.h"
#include "src/registration/rank_names.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// Beside the ranks that are to come: port scans and connections of ranks that tried twice.
constexpr size_t kStrangers = 64;

// As they travel.
struct Challenge {
  uint32_t magic = WireHello::kMagic;
  uint32_t version = kWireVersion;
  HashKey nonce{};
};

struct Hello {
  HashKey nonce{};
  uint64_t rank = 0;
  uint64_t version = kWireVersion;
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
                                             hello.version};
  return KeyedHash(key, statement.data(), sizeof(statement));
}

Result<std::string> NewChallenge() {
  Result<HashKey> nonce = RandomKey();
  if (!nonce.ok()) return nonce.status();
  const Challenge challenge{.nonce = *nonce};
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
  explicit RanksToCome(const LinkOptions& options)
      : key_(options.key), connections_(static_cast<size_t>(options.ranks - 1)) {}

  bool complete() const { return admitted_ == connections_.size(); }
  std::vector<Connection> Take() { return std::move(connections_); }

  // "1 3", or "1 3 and 200 others".
  std::string Missing() const {
    std::vector<size_t> missing;
    for (size_t index = 0; index < connections_.size(); ++index) {
      if (!connections_[index].valid()) missing.push_back(index + 1);
    }
    return SomeOf(missing, 16, " ");
  }

  // Who cannot prove to be a rank goes without an answer. A rank that comes again has given its first connection up.
  void Admit(Caller caller) {
    const Challenge challenge = ReadAs<Challenge>(caller.challenge);
    const Hello hello = ReadAs<Hello>(caller.hello);
    const bool is_rank = hello.version == kWireVersion && hello.rank >= 1 && hello.rank <= connections_.size() &&
                         hello.proof == Proof(key_, Prover::kRank, challenge, hello);
    if (!is_rank) return;
    const uint64_t welcome = Proof(key_, Prover::kRankZero, challenge, hello);
    if (!caller.connection.Send(&welcome, sizeof(welcome), DeadlineAfter({})).ok()) return;
    Connection& place = connections_[hello.rank - 1];
    if (!place.valid()) ++admitted_;
    place = std::move(caller.connection);
  }

 private:
  const HashKey key_;
  std::vector<Connection> connections_;
  size_t admitted_ = 0;
};

Status NotAllCame(const std::string& address, const std::string& missing, const Status& last) {
  return Status(last.code(), "agreement channel: these ranks did not connect to " + address + ": " + missing + " (" +
                                 last.message() +
                                 "): is the network between them open? COMMPOOL_INTERFACE names the interface to use");
}

// One attempt: the connection, or nothing where rank 0 closed it, which it does with callers that it has no room for.
Result<std::optional<Connection>> TryToJoin(const LinkOptions& options, const std::string& address, Deadline deadline) {
  const auto again = [](const Status& status) -> Result<std::optional<Connection>> {
    if (status.code() == StatusCode::kRemoteFailure) return std::optional<Connection>();
    return status;
  };
  Connection connection = COMMPOOL_TRY(Connect(address, deadline));
  Challenge challenge;
  if (Status status = connection.Receive(&challenge, sizeof(challenge), deadline); !status.ok()) return again(status);
  Result<HashKey> nonce = RandomKey();
  if (!nonce.ok()) return nonce.status();
  if (challenge.magic == WireHello::kMagic && challenge.version != kWireVersion) {
    return VersionsDiffer(0, challenge.version, "this rank", kWireVersion);
  }
  Hello hello{.nonce = *nonce, .rank = static_cast<uint64_t>(options.rank)};
  hello.proof = Proof(options.key, Prover::kRank, challenge, hello);
  if (Status status = connection.Send(&hello, sizeof(hello), deadline); !status.ok()) return again(status);
  uint64_t welcome = 0;
  if (Status status = connection.Receive(&welcome, sizeof(welcome), deadline); !status.ok()) return again(status);
  if (challenge.magic != WireHello::kMagic || welcome != Proof(options.key, Prover::kRankZero, challenge, hello)) {
    return Status(StatusCode::kDisagreement, "what listens at " + address + " is not rank 0 of this pool");
  }
  return std::optional<Connection>(std::move(connection));
}

}  // namespace

AdmittedRanks AdmitRanks(const LinkOptions& options, Listener listener) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  RanksToCome ranks(options);
  const auto most_silent = static_cast<size_t>(options.ranks - 1) + kStrangers;
  Reception reception(std::move(listener), {sizeof(Hello), most_silent, NewChallenge});
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

Result<Connection> JoinRankZero(const LinkOptions& options, const std::string& address) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    Result<std::optional<Connection>> connection = TryToJoin(options, address, deadline);
    if (!connection.ok()) return connection.status().under("rank 0");
    if (*connection) return std::move(**connection);
    if (DeadlineAfter(pause) >= deadline) {
      return Status(StatusCode::kDeadlineExceeded, "rank 0 let nobody in at " + address + " before the deadline");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace commpool::internal
