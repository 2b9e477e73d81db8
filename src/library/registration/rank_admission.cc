#include "src/library/registration/rank_admission.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "src/library/base/interface.h"
#include "src/library/base/interruption.h"
#include "src/library/base/reception.h"
#include "src/library/base/try.h"
#include "src/library/registration/lost_ranks.h"

namespace commpool::internal {

namespace {

Status Listen(Introduction& mine, std::optional<Listener>& listener) {
  mine.key = COMMPOOL_TRY(RandomKey());
  listener = COMMPOOL_TRY(Listener::Open());
  mine.address = listener->address();
  mine.why = listener->why_local();
  return Status();
}

// "rank 2", "ranks 2, 5 and 4 others": bounded, however many there are.
std::string OfOtherHosts(const std::vector<Introduction>& all) {
  std::vector<size_t> ranks;
  for (const Introduction& one : all) {
    if (one.host != all.front().host) ranks.push_back(one.rank);
  }
  return ranks.empty() ? "" : NamesOfRanks(ranks, 8);
}

// How many callers may be connected beside the missing ranks: port scans, and ranks that try a second time.
constexpr size_t kStrangers = 64;

// Rank 0's first message, as it travels.
struct Challenge {
  uint32_t magic = WireHello::kMagic;
  uint32_t version = kWireVersion;
  HashKey nonce{};
};

// A rank's answer, as it travels.
struct Hello {
  HashKey nonce{};
  uint64_t rank = 0;
  uint64_t version = kWireVersion;
  uint64_t proof = 0;
};

enum class Prover : uint64_t { kRank = 1, kRankZero = 2 };

// The proof that `prover` knows the key, for this connection alone.
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
  const HashKey nonce = COMMPOOL_TRY(RandomKey());
  const Challenge challenge{.nonce = nonce};
  return std::string(reinterpret_cast<const char*>(&challenge), sizeof(challenge));
}

template <typename Message>
Message ReadAs(const std::string& bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// Returns the rank that a caller has proved to be, after an answer to it. A caller that cannot prove any gets no
// answer: 0.
size_t Welcome(const LinkOptions& options, Caller& caller) {
  const Challenge challenge = ReadAs<Challenge>(caller.challenge);
  const Hello hello = ReadAs<Hello>(caller.hello);
  const bool is_rank = hello.version == kWireVersion && hello.rank >= 1 &&
                       hello.rank < static_cast<uint64_t>(options.ranks) &&
                       hello.proof == Proof(options.key, Prover::kRank, challenge, hello);
  if (!is_rank) return 0;
  const uint64_t welcome = Proof(options.key, Prover::kRankZero, challenge, hello);
  return caller.connection.Send(&welcome, sizeof(welcome), DeadlineAfter({})).ok() ? hello.rank : 0;
}

Status NotAllCame(const std::string& address, const std::vector<Connection>& came, const Status& last) {
  std::vector<size_t> missing;
  for (size_t index = 0; index < came.size(); ++index) {
    if (!came[index].valid()) missing.push_back(index + 1);
  }
  return Failure(last.code(), "agreement channel: these ranks did not connect to ", address, ": ",
                 SomeOf(missing, 16, " "), " (", last.message(),
                 "): is the network between them open? COMMPOOL_INTERFACE names the interface to use");
}

// One attempt. kRemoteFailure where rank 0 closed the connection, which it does with callers that it has no room for.
Result<Connection> TryToJoin(const LinkOptions& options, const std::string& address, Deadline deadline) {
  Connection connection = COMMPOOL_TRY(Connect(address, deadline));
  Challenge challenge;
  COMMPOOL_TRY(connection.Receive(&challenge, sizeof(challenge), deadline));
  const HashKey nonce = COMMPOOL_TRY(RandomKey());
  if (challenge.magic == WireHello::kMagic && challenge.version != kWireVersion) {
    return VersionsDiffer(0, challenge.version, "this rank", kWireVersion);
  }
  Hello hello{.nonce = nonce, .rank = static_cast<uint64_t>(options.rank)};
  hello.proof = Proof(options.key, Prover::kRank, challenge, hello);
  COMMPOOL_TRY(connection.Send(&hello, sizeof(hello), deadline));
  uint64_t welcome = 0;
  COMMPOOL_TRY(connection.Receive(&welcome, sizeof(welcome), deadline));
  if (challenge.magic != WireHello::kMagic || welcome != Proof(options.key, Prover::kRankZero, challenge, hello)) {
    return Disagreement("what listens at ", address, " is not rank 0 of this pool");
  }
  return connection;
}

}  // namespace

Introduction Introduce(int rank, std::optional<Listener>& listener) {
  Introduction mine;
  mine.rank = static_cast<uint64_t>(rank);
  mine.host = HostIdentity();
  if (rank != 0) return mine;
  const Status status = Listen(mine, listener);
  if (!status.ok()) mine.why = status.message();
  return mine;
}

std::string Pad(Introduction mine) {
  std::string bytes = Encode(mine);
  if (bytes.size() > kIntroductionBytes) {
    mine.why.resize(mine.why.size() - std::min(mine.why.size(), bytes.size() - kIntroductionBytes));
    bytes = Encode(mine);
  }
  bytes.resize(kIntroductionBytes);
  return bytes;
}

Result<std::vector<Introduction>> DecodePadded(std::vector<std::string> introductions) {
  for (std::string& bytes : introductions) {
    const auto contents = static_cast<size_t>(SizeOfMessage(bytes));
    const bool zeros = contents <= bytes.size() && bytes.find_first_not_of('\0', contents) == std::string::npos;
    if (zeros) bytes.resize(contents);
  }
  return DecodeAll<Introduction>(introductions);
}

Status CheckReach(const std::vector<Introduction>& all) {
  const Introduction& first = all.front();
  constexpr const char* kAdvice =
      "; COMMPOOL_INTERFACE names the interface to use, or an address of it, on rank 0's host";
  if (first.address.empty()) {
    return RemoteFailure("rank 0 cannot listen for the agreement channel: ", first.why, kAdvice);
  }
  const std::string elsewhere = OfOtherHosts(all);
  if (first.why.empty() || elsewhere.empty()) return Status();
  return FailedPrecondition("rank 0 listens at ", first.address, ", which only its own host reaches, and ", elsewhere,
                            " run elsewhere (", first.why, ")", kAdvice);
}

AdmittedRanks AdmitRanks(const LinkOptions& options, Listener listener) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  const auto others = static_cast<size_t>(options.ranks - 1);
  AdmittedRanks admitted{std::vector<Connection>(others), Status()};
  Reception reception(std::move(listener), {sizeof(Hello), others + kStrangers, NewChallenge});
  for (size_t missing = others; missing > 0;) {
    Result<Caller> caller = reception.Next(deadline);
    if (!caller.ok()) {
      admitted.status = NotAllCame(reception.address(), admitted.connections, caller.status());
      break;
    }
    const size_t rank = Welcome(options, *caller);
    if (rank == 0) continue;
    // A rank that comes a second time has given its first connection up.
    Connection& place = admitted.connections[rank - 1];
    if (!place.valid()) --missing;
    place = std::move(caller->connection);
  }
  return admitted;
}

Result<Connection> JoinRankZero(const LinkOptions& options, const std::string& address) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  WaitSlices slices(deadline);
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    Result<Connection> connection = TryToJoin(options, address, deadline);
    if (connection.ok()) return connection;
    if (connection.status().code() != StatusCode::kRemoteFailure) return connection.status().under("rank 0");
    if (slices.Over() || DeadlineAfter(pause) >= deadline) {
      return DeadlineExceeded("rank 0 let nobody in at ", address, " before the deadline");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace commpool::internal
