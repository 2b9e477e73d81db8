// What a program of `commpool_stress ranks` does after a loss: it abandons its communicators and aborts them; the
// survivors move pools to a communicator of their own, use them there and close them. The program's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "src/library/pool/runtime.h"
#include "tools/stress/ranks/communicators.h"
#include "tools/stress/ranks/control.h"
#include "tools/stress/ranks/pool_in_use.h"
#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

class Recovery {
 public:
  Recovery(internal::Runtime& runtime, Communicators& communicators, const Schedule& schedule, int rank,
           std::vector<PoolInUse>& pools, Control& control)
      : runtime_(runtime),
        communicators_(communicators),
        schedule_(schedule),
        rank_(rank),
        pools_(pools),
        control_(control) {}

  void Run();

 private:
  // Reports the call to the command, like every other call.
  void Call(const std::function<Status()>& call);
  void FreeBlocks();
  void Abandon();
  // Moves pools that surely live on every survivor.
  void MoveAndUse(const std::vector<int>& survivors);

  internal::Runtime& runtime_;
  Communicators& communicators_;
  const Schedule& schedule_;
  const int rank_;
  std::vector<PoolInUse>& pools_;
  Control& control_;
  size_t number_ = kFirstOfRecovery;
};

}  // namespace commpool::cli::stress_ranks
