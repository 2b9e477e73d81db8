#include "tests/registration/rank_group.h"

#include <cstdlib>
#include <thread>

namespace commpool::internal::testing {

Statuses RunThreads(int ranks, const std::function<Status(int)>& body) {
  Statuses statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

RankGroup::RankGroup(int ranks) {
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);  // multicast stays off on hardware
  for (int number = 0; number < ranks; ++number) {
    ranks_.push_back(
        {.number = number, .ranks = ranks, .context = PrimaryContext::Retain(*SharedDriver(), number).value()});
  }
  const std::vector<ncclComm_t> communicators = ConnectFrom(0);
  for (Rank& rank : ranks_) {
    rank.communicator = communicators[static_cast<size_t>(rank.number)];
    ContextGuard current(*SharedDriver(), rank.context);
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
}

RankGroup::~RankGroup() {
  std::vector<ncclComm_t> communicators;
  for (const Rank& rank : ranks_) communicators.push_back(rank.communicator);
  Destroy(communicators);
  for (Rank& rank : ranks_) {
    ContextGuard current(*SharedDriver(), rank.context);
    EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(rank.stream), CUDA_SUCCESS);
  }
}

Statuses RankGroup::Run(const std::function<Status(Rank&)>& body) {
  return RunThreads(size(), [&](int number) {
    Rank& rank = (*this)[number];
    ContextGuard current(*SharedDriver(), rank.context);
    return body(rank);
  });
}

void RankGroup::ForEach(const std::function<void(Rank&)>& body) {
  ExpectOk(Run([&](Rank& rank) {
    body(rank);
    return Status();
  }));
}

std::vector<ncclComm_t> RankGroup::ConnectFrom(int first, const ncclConfig_t& config) {
  const NcclLibrary& nccl = SharedDriver()->nccl;
  ncclUniqueId id;
  EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> communicators(ranks_.size());
  ExpectOk(Run([&](Rank& rank) {
    if (rank.number < first) return Status();
    ncclComm_t& communicator = communicators[static_cast<size_t>(rank.number)];
    ncclConfig_t own = config;
    const ncclResult_t result =
        nccl.ncclCommInitRankConfig(&communicator, size() - first, id, rank.number - first, &own);
    EXPECT_TRUE(result == ncclSuccess || (config.blocking == 0 && result == ncclInProgress)) << result;
    return Status();
  }));
  return communicators;
}

void RankGroup::Destroy(std::vector<ncclComm_t>& communicators) {
  ForEach([&](Rank& rank) {
    ncclComm_t communicator = std::exchange(communicators[static_cast<size_t>(rank.number)], nullptr);
    if (communicator != nullptr) {
      EXPECT_EQ(SharedDriver()->nccl.ncclCommDestroy(communicator), ncclSuccess);
    }
  });
}

void ExpectOk(const Statuses& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank].message();
  }
}

void ExpectFailure(const Statuses& statuses, StatusCode code, const std::string& fragment) {
  for (const Status& status : statuses) ExpectFailure(status, code, fragment);
}

}  // namespace commpool::internal::testing
