// A communicator that an API call is about to make, and what its configuration says. Any thread.
#pragma once

#include <nccl.h>

#include <memory>

#include "src/emulator/nccl/communicator.h"

namespace commpool::internal::emulated_nccl {

// Reads `config`; a null one is the inherited configuration. The inherited `blocking` holds too where `config` does not
// say it.
ncclResult_t ReadConfig(const ncclConfig_t* config, const Configuration& inherited, Configuration* configuration);

// Owns the handle of a nonblocking communicator until the communicator is ready. Calls that make communicators use it.
class NewCommunicator {
 public:
  // Sets `target` to null, or to the handle of a nonblocking communicator, which exists from now on.
  NewCommunicator(ncclComm_t* target, const Configuration& configuration);

  // Null for a blocking communicator.
  const std::shared_ptr<AsyncWork>& async() const { return async_; }

  // Joins the others, and gives the communicator to the program.
  ncclResult_t Make(EmulatedCommunicator::Place place, const ncclUniqueId& id) const;

 private:
  ncclComm_t* target_;
  Configuration configuration_;
  ncclComm_t handle_ = nullptr;
  std::shared_ptr<AsyncWork> async_;
};

}  // namespace commpool::internal::emulated_nccl
