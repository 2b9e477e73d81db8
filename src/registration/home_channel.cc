#include "src/registration/home_channel.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "src/registration/introduction.h"
#include "src/registration/small_all_gather.h"
#include "src/registration/tcp_channel.h"

namespace commpool::internal {

namespace {

// Sends `mine` to all and returns everybody's.
Result<std::vector<Introduction>> ExchangeOverHome(const Driver& driver, const Communicator& home,
                                                   const Introduction& mine, uint64_t deadline_ms) {
  const std::string sent(reinterpret_cast<const char*>(&mine), sizeof(mine));
  Result<std::vector<std::string>> received =
      GatherOver(driver, home, sent,
                 {.call = "create",
                  .likely_cause = "not every rank creates the pool, or one has another collective at this place; a "
                                  "thread that owns several ranks creates their pools in one call"},
                 deadline_ms);
  if (!received.ok()) return received.status();
  std::vector<Introduction> all(received->size());
  for (size_t rank = 0; rank < all.size(); ++rank) std::memcpy(&all[rank], (*received)[rank].data(), sizeof(mine));
  return all;
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> OpenHomeChannel(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms) {
  if (home.ranks == 1) return MakeSelfChannel();
  std::optional<Listener> listener;
  const Introduction mine = Introduce(home.rank, listener);
  Result<std::vector<Introduction>> all = ExchangeOverHome(driver, home, mine, deadline_ms);
  if (!all.ok()) return all.status();
  if (Status status = CheckReach(*all); !status.ok()) return status;
  const TcpChannelOptions options{.rank = home.rank,
                                  .ranks = home.ranks,
                                  .deadline = std::chrono::milliseconds(deadline_ms),
                                  .key = all->front().key};
  if (listener) return AcceptTcpChannel(options, std::move(*listener));
  return ConnectTcpChannel(options, std::string(all->front().address.data()));
}

}  // namespace commpool::internal
