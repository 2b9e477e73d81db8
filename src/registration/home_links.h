// The links of a process, by home communicator, while pools use them: pools of one home share one. Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_
#define COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_

#include <map>
#include <memory>

#include "src/base/mutex.h"
#include "src/registration/communicator.h"
#include "src/registration/home_link.h"

namespace commpool::internal {

class HomeLinks {
 public:
  // The link that pools of this home use on this rank; null where none does, or a rank of it is lost. It may be one of
  // a communicator that had the same address before: the ranks compare the links' numbers.
  std::shared_ptr<HomeLink> Find(const Communicator& home);
  void Keep(const Communicator& home, const std::shared_ptr<HomeLink>& link);
  // The runtime ends.
  void StopWatching();

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::map<ncclComm_t, std::weak_ptr<HomeLink>> links_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_HOME_LINKS_H_
