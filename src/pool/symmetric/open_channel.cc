#include "src/pool/symmetric/open_channel.h"

#include <utility>

namespace commpool::internal {

Result<std::unique_ptr<AgreementChannel>> OpenChannel(const Driver& driver, const PrimaryContext& context,
                                                      HomeLinks& links, const Communicator& home,
                                                      const PoolConfiguration& configuration) {
  if (configuration.all_gather != nullptr) {
    return MakeCallerChannel(home.rank, home.ranks, configuration.all_gather, configuration.all_gather_context);
  }
  const ContextGuard current(driver, context);
  Result<std::unique_ptr<AgreementChannel>> channel = links.Open(driver, home, configuration.deadline_ms);
  if (!channel.ok()) return channel.status().under("pool " + configuration.name);
  return channel;
}

}  // namespace commpool::internal
