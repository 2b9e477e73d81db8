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

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/base/expect_status.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

struct Rank {
  int number = 0;  // and its device
  int ranks = 1;
  size_t index() const { return static_cast<size_t>(number); }
  PrimaryContext context;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;
};

using Statuses = std::vector<Status>;

using internal::ExpectFailure;
using internal::ExpectOk;
// Expects that every rank's status is OK.
inline void ExpectOk(const Statuses& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank].message();
  }
}

// Expects that every rank failed with this code, and that its message holds the fragment.
inline void ExpectFailure(const Statuses& statuses, StatusCode code, const std::string& fragment) {
  for (const Status& status : statuses) ExpectFailure(status, code, fragment);
}

// The same for several fragments.
inline void ExpectFailureNaming(const Statuses& statuses, StatusCode code, const std::vector<std::string>& fragments) {
  for (const std::string& fragment : fragments) ExpectFailure(statuses, code, fragment);
}

// Calls body(0) to body(ranks - 1), each on its own thread.
inline Statuses RunThreads(int ranks, const std::function<Status(int)>& body) {
  Statuses statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

class RankGroup {
 public:
  explicit RankGroup(int ranks) {
    setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);  // multicast stays off on hardware
    for (int number = 0; number < ranks; ++number) {
      ranks_.push_back(
          {.number = number, .ranks = ranks, .context = PrimaryContext::Retain(*SharedDriver(), number).value()});
    }
    const std::vector<ncclComm_t> communicators = ConnectFrom(0);
    for (Rank& rank : ranks_) {
      rank.communicator = communicators[rank.index()];
      ContextGuard current(*SharedDriver(), rank.context);
      EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
  }
  ~RankGroup() {
    std::vector<ncclComm_t> communicators;
    for (const Rank& rank : ranks_) communicators.push_back(rank.communicator);
    Destroy(communicators);
    for (Rank& rank : ranks_) {
      ContextGuard current(*SharedDriver(), rank.context);
      EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(rank.stream), CUDA_SUCCESS);
    }
  }
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& operator[](int number) { return ranks_[static_cast<size_t>(number)]; }
  auto begin() { return ranks_.begin(); }
  auto end() { return ranks_.end(); }

  // Makes the rank's device current on its thread.
  Statuses Run(const std::function<Status(Rank&)>& body) {
    return RunThreads(size(), [&](int number) {
      Rank& rank = (*this)[number];
      ContextGuard current(*SharedDriver(), rank.context);
      return body(rank);
    });
  }
  // The same for what cannot fail but by its own expectations.
  void ForEach(const std::function<void(Rank&)>& body) {
    ExpectOk(Run([&](Rank& rank) {
      body(rank);
      return Status();
    }));
  }

  // A communicator over the ranks from `first` on; null on the others. One that does not block may not be ready yet.
  // The caller destroys it.
  std::vector<ncclComm_t> ConnectFrom(int first, const ncclConfig_t& config = NCCL_CONFIG_INITIALIZER) {
    const NcclLibrary& nccl = SharedDriver()->nccl;
    ncclUniqueId id;
    EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> communicators(ranks_.size());
    ExpectOk(Run([&](Rank& rank) {
      if (rank.number < first) return Status();
      ncclComm_t& communicator = communicators[rank.index()];
      ncclConfig_t own = config;
      const ncclResult_t result =
          nccl.ncclCommInitRankConfig(&communicator, size() - first, id, rank.number - first, &own);
      EXPECT_TRUE(result == ncclSuccess || (config.blocking == 0 && result == ncclInProgress)) << result;
      return Status();
    }));
    return communicators;
  }
  // Of all ranks; one that does not block.
  std::vector<ncclComm_t> ConnectNonblocking() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ConnectFrom(0, config);
  }
  void Destroy(std::vector<ncclComm_t>& communicators) {
    ForEach([&](Rank& rank) {
      ncclComm_t communicator = std::exchange(communicators[rank.index()], nullptr);
      if (communicator != nullptr) {
        EXPECT_EQ(SharedDriver()->nccl.ncclCommDestroy(communicator), ncclSuccess);
      }
    });
  }

 private:
  std::vector<Rank> ranks_;
};

// What `call` returns where this fault meets it.
template <typename Call>
auto With(const Fault& fault, Call call) {
  const InjectedFault injected(fault);
  return call();
}

// A fixture whose tests run on the emulator alone, because calls fail there on purpose.
template <typename Fixture>
class UnderFaults : public Fixture {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected");
    Fixture::SetUp();
  }
};

}  // namespace commpool::internal::testing
