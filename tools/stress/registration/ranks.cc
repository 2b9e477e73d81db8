#include "tools/stress/registration/ranks.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

Result<std::unique_ptr<StressRanks>> StressRanks::Make(const internal::Driver& driver, internal::Runtime& runtime,
                                                       int count) {
  std::unique_ptr<StressRanks> ranks(new StressRanks(driver, runtime));
  for (int number = 0; number < count; ++number) {
    Result<internal::PrimaryContext> context = internal::PrimaryContext::Retain(driver, number);
    if (!context.ok()) return context.status();
    StressRank& rank = ranks->ranks_.emplace_back();
    rank.number = number;
    rank.context = std::move(*context);
    const internal::ContextGuard current(driver, rank.context);
    COMMPOOL_TRY(internal::CheckCuda(driver, driver.cuda.cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING),
                                     {.call = "cuStreamCreate", .device = number}));
  }
  return ranks;
}

StressRanks::~StressRanks() {
  Destroy(Which::kSecond);
  Destroy(Which::kHome);
  for (StressRank& rank : ranks_) {
    const internal::ContextGuard current(driver_, rank.context);
    if (rank.stream == nullptr) continue;
    static_cast<void>(runtime_.ReleaseStream(rank.stream));  // the pools were told that streams outlive their use
    driver_.cuda.cuStreamDestroy(rank.stream);
  }
}

void StressRanks::Run(const std::function<void(StressRank&)>& body) {
  std::vector<std::thread> threads;
  for (StressRank& rank : ranks_) {
    threads.emplace_back([&] {
      const internal::ContextGuard current(driver_, rank.context);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Status StressRanks::Connect(int second_from) {
  Status status;
  if (ranks_.front().home == nullptr) status = Join(Which::kHome, 0);
  if (!status.ok()) return status;
  const bool there = ranks_.back().second != nullptr;  // the last rank is always a member
  if (there && second_from == second_from_) return Status();
  Destroy(Which::kSecond);
  second_from_ = second_from;
  return Join(Which::kSecond, second_from);
}

Status StressRanks::Join(Which which, int from) {
  ncclUniqueId id = {};
  COMMPOOL_TRY(internal::CheckNccl(driver_, driver_.nccl.ncclGetUniqueId(&id), {.call = "ncclGetUniqueId"}));
  std::vector<Status> statuses(ranks_.size());
  Run([&](StressRank& rank) {
    if (rank.number < from) return;
    statuses[static_cast<size_t>(rank.number)] = internal::CheckNccl(
        driver_, driver_.nccl.ncclCommInitRank(&Of(rank, which), count() - from, id, rank.number - from),
        {.call = "ncclCommInitRank", .device = rank.number});
  });
  const auto failed = std::find_if(statuses.begin(), statuses.end(), [](const Status& status) { return !status.ok(); });
  return failed == statuses.end() ? Status() : *failed;
}

void StressRanks::Destroy(Which which) {
  Run([&](StressRank& rank) { driver_.nccl.ncclCommDestroy(std::exchange(Of(rank, which), nullptr)); });
}

}  // namespace commpool::cli
