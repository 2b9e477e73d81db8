// Ranks as threads of one process, each with its own device, stream and communicator.
//
//   RankGroup group(4);
//   group.Run([&](Rank& rank) { return pools[rank.rank]->mode().Reserve(bytes); });   // every rank's Status, rank 0's
//   first
//
// One thread owns a group. On the emulator and on hardware.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <functional>
#include <string>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/base/expect_status.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

struct Rank {
  int number = 0;  // and its device
  int ranks = 1;
  PrimaryContext context;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;
};

using Statuses = std::vector<Status>;

// Calls body(0) to body(ranks - 1), each on its own thread.
Statuses RunThreads(int ranks, const std::function<Status(int)>& body);

class RankGroup {
 public:
  explicit RankGroup(int ranks);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& operator[](int number) { return ranks_[static_cast<size_t>(number)]; }

  // Makes the rank's device current on its thread.
  Statuses Run(const std::function<Status(Rank&)>& body);
  // The same for what cannot fail but by its own expectations.
  void ForEach(const std::function<void(Rank&)>& body);

  // A communicator over the ranks from `first` on; null on the others. One that does not block may not be ready yet.
  // The caller destroys it.
  std::vector<ncclComm_t> ConnectFrom(int first, const ncclConfig_t& config = NCCL_CONFIG_INITIALIZER);
  void Destroy(std::vector<ncclComm_t>& communicators);

 private:
  std::vector<Rank> ranks_;
};

using internal::ExpectFailure;
using internal::ExpectOk;
// Expects that every rank's status is OK.
void ExpectOk(const Statuses& statuses);
// Expects that every rank failed with this code, and that its message holds the fragment.
void ExpectFailure(const Statuses& statuses, StatusCode code, const std::string& fragment);

}  // namespace commpool::internal::testing
