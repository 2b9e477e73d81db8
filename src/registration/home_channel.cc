#include "src/registration/home_channel.h"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/registration/small_all_gather.h"
#include "src/registration/tcp_channel.h"

namespace commpool::internal {

namespace {

// What each rank sends over the communicator; only rank 0's counts. Whole 32-bit words, NCCL's ncclInt32.
struct Introduction {
  std::array<char, 48> address{};  // empty where rank 0 could not listen
  uint64_t secret = 0;
  uint64_t rank = 0;
};
static_assert(sizeof(Introduction) % sizeof(int32_t) == 0);

// Sends `mine` to all and returns rank 0's.
Result<Introduction> ExchangeOverHome(const Driver& driver, const Communicator& home, const Introduction& mine,
                                      uint64_t deadline_ms) {
  const std::string sent(reinterpret_cast<const char*>(&mine), sizeof(mine));
  Result<std::vector<std::string>> received =
      GatherOver(driver, home, sent,
                 {.call = "create",
                  .likely_cause = "not every rank creates the pool, or one has another collective at this place; a "
                                  "thread that owns several ranks creates their pools in one call"},
                 deadline_ms);
  if (!received.ok()) return received.status();
  Introduction first;
  std::memcpy(&first, received->front().data(), sizeof(first));
  return first;
}

uint64_t MakeSecret() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> OpenHomeChannel(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms) {
  if (home.ranks == 1) return MakeSelfChannel();
  Introduction mine;
  mine.rank = static_cast<uint64_t>(home.rank);
  std::optional<Listener> listener;
  Status listening;
  if (home.rank == 0) {
    Result<Listener> opened = Listener::Open();
    listening = opened.status();
    if (opened.ok()) {
      mine.secret = MakeSecret();
      std::strncpy(mine.address.data(), opened->address().c_str(), mine.address.size() - 1);
      listener = std::move(*opened);
    }
  }
  Result<Introduction> first = ExchangeOverHome(driver, home, mine, deadline_ms);
  if (!first.ok()) return first.status();
  if (first->address[0] == '\0') {
    return Status(StatusCode::kRemoteFailure, "create: rank 0 could not listen for the agreement channel" +
                                                  (listening.ok() ? std::string() : ": " + listening.message()));
  }
  const TcpChannelOptions options{.rank = home.rank,
                                  .ranks = home.ranks,
                                  .deadline = std::chrono::milliseconds(deadline_ms),
                                  .secret = first->secret};
  if (listener) return AcceptTcpChannel(options, std::move(*listener));
  return ConnectTcpChannel(options, std::string(first->address.data()));
}

}  // namespace commpool::internal
