#include "src/pool/symmetric/open_channel.h"

#include "src/registration/home_channel.h"

namespace commpool::internal {

Result<std::unique_ptr<AgreementChannel>> OpenChannel(const Driver& driver, const PrimaryContext& context,
                                                      const Communicator& home,
                                                      const PoolConfiguration& configuration) {
  if (configuration.all_gather != nullptr) {
    return MakeCallerChannel(home.rank, home.ranks, configuration.all_gather, configuration.all_gather_context);
  }
  const ContextGuard current(driver, context);
  return OpenHomeChannel(driver, home, configuration.deadline_ms);
}

}  // namespace commpool::internal
