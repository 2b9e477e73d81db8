// The way to the ranks of a home, as a pool's options ask for it: over the caller's all-gather, or over the link
// that the pools of this home share.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_OPEN_CHANNEL_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_OPEN_CHANNEL_H_

#include <memory>

#include "commpool/status.h"
#include "src/driver/handles.h"
#include "src/pool/options.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/home_links.h"

namespace commpool::internal {

// Collective over home; `context` is of its device.
Result<std::unique_ptr<AgreementChannel>> OpenChannel(const Driver& driver, const PrimaryContext& context,
                                                      HomeLinks& links, const Communicator& home,
                                                      const PoolConfiguration& configuration);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_OPEN_CHANNEL_H_
