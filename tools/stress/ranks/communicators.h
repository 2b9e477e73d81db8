// The communicators of one process of `commpool_stress ranks`. The program's thread makes and destroys them; any thread
// may abort them.
#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "tools/stress/ranks/control.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

class Communicators {
 public:
  Communicators(const internal::Driver& driver, const Schedule& schedule, int rank, Control& control)
      : driver_(driver), schedule_(schedule), rank_(rank), control_(control) {}

  // Makes the world communicator, and the second one as the schedule says. Collective.
  Status Make();
  // Makes one of these ranks, by an id that `name` gives to the others. Collective over them.
  Result<ncclComm_t> Join(const std::string& name, const std::vector<int>& members);

  ncclComm_t Of(Home home) const { return home == Home::kWorld ? world_ : second_; }

  // Aborts all that exist, once; those that are joined later are new.
  void Abort();
  bool aborted() const;
  // Destroys those that were not aborted.
  void Destroy();

 private:
  Result<ncclComm_t> MakeSecond();
  Result<ncclComm_t> Grow(const std::vector<int>& members);
  // Makes the call that makes a communicator, and waits for it.
  Result<ncclComm_t> Await(const char* call, const std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>& make);
  ncclUniqueId Receive(const std::string& name);
  void Offer(const std::string& name, const ncclUniqueId& id);

  const internal::Driver& driver_;
  const Schedule& schedule_;
  const int rank_;
  Control& control_;
  ncclComm_t world_ = nullptr;
  ncclComm_t second_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<ncclComm_t> all_;
  bool aborted_ = false;
};

}  // namespace commpool::cli::stress_ranks
