// The links of a process, by home communicator. Pools of one home share one link; it ends with the last of them. A
// runtime has one such table. Any thread.
//
// A channel opens over the link that pools of its home use already, if all ranks have the same one. Else the ranks open
// a new link: rank 0 listens, and sends its address once over the communicator.
#ifndef COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_
#define COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/driver/loader.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/communicator.h"
#include "src/registration/home_link.h"
#include "src/registration/small_all_gather.h"

namespace commpool::internal {

class HomeLinks {
 public:
  // Opens a channel for a new pool of the home. Collective over the communicator; its device must be current. Returns
  // within the deadline.
  Result<std::unique_ptr<AgreementChannel>> Open(const Driver& driver, const Communicator& home, uint64_t deadline_ms,
                                                 UnansweredGathers& unanswered);

  // The link that pools of this home use on this rank. Null where no pool does, or where the link has lost a rank. The
  // link may belong to an earlier communicator at the same address, so the ranks compare the links' numbers.
  std::shared_ptr<HomeLink> Find(const Communicator& home);
  void Keep(const Communicator& home, const std::shared_ptr<HomeLink>& link);
  // Called when the runtime ends.
  void StopWatching();

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::map<ncclComm_t, std::weak_ptr<HomeLink>> links_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_
