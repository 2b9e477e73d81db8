// Opens an agreement channel of a home communicator: over the link that pools of this home have already, where all
// ranks have the same one, else over a new one: rank 0 listens, and its address is sent once over the communicator.
#ifndef COMMPOOL_SRC_REGISTRATION_HOME_CHANNEL_H_
#define COMMPOOL_SRC_REGISTRATION_HOME_CHANNEL_H_

#include <memory>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/home_links.h"

namespace commpool::internal {

// Collective over the communicator; its device must be current. Bounded by the deadline. Where a rank is missing the
// device may still run NCCL's kernel, so the few hundred bytes that it uses are left to the process then.
Result<std::unique_ptr<AgreementChannel>> OpenHomeChannel(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms, HomeLinks& links);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_HOME_CHANNEL_H_
