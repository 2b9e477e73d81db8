#include "tools/cli/bench/simulated_agreement.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/base/try.h"
#include "src/library/registration/agreement.h"
#include "src/library/registration/home_links.h"
#include "tools/cli/median.h"

namespace commpool::cli {

namespace {

using internal::AgreementChannel;
using internal::HomeLink;
using internal::LinkTraffic;

constexpr rlim_t kDescriptorsOfARank = 8;
constexpr size_t kStackBytes = 256 << 10;
constexpr std::chrono::minutes kDeadline{10};
constexpr int kWarmUp = 5;

// Allows as many descriptors as the ranks need, if the system lets us.
Status RaiseDescriptorLimit(int ranks) {
  const rlim_t needed = static_cast<rlim_t>(ranks) * kDescriptorsOfARank + 256;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return Status();
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return Status();
  return Status(StatusCode::kNotSupported, std::to_string(ranks) + " ranks need " + std::to_string(needed) +
                                               " descriptors, and the system allows " + std::to_string(limit.rlim_cur) +
                                               " (ulimit -Hn)");
}

// New threads of this process get small stacks, because each rank has two threads.
void UseSmallStacks() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

void ForEachRank(int ranks, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

Status FirstFailure(const std::vector<Status>& statuses) {
  const auto failed = std::find_if(statuses.begin(), statuses.end(), [](const Status& status) { return !status.ok(); });
  return failed == statuses.end() ? Status() : *failed;
}

internal::Intent IntentOfReserve() {
  return {.bytes = 1 << 20, .nccl_version = 22809, .memory_left = uint64_t{1} << 36};
}

// The ranks with their links, and one channel for each pool.
class SimulatedRanks {
 public:
  using Call = std::function<Status(size_t rank)>;

  Status Open(int ranks, int pools) {
    internal::Listener listener = COMMPOOL_TRY(internal::Listener::Open());
    const std::string address = listener.address();
    links_.resize(static_cast<size_t>(ranks));
    std::vector<Status> statuses(links_.size());
    ForEachRank(ranks, [&](size_t rank) {
      const internal::LinkOptions options{.rank = static_cast<int>(rank), .ranks = ranks, .deadline = kDeadline};
      Result<std::shared_ptr<HomeLink>> link =
          rank == 0 ? HomeLink::Accept(options, std::move(listener)) : HomeLink::Join(options, address);
      statuses[rank] = link.status();
      if (!link.ok()) return;
      (*link)->StopWatching();
      links_[rank] = std::move(*link);
    });
    if (Status status = FirstFailure(statuses); !status.ok()) return status;
    for (const std::shared_ptr<HomeLink>& link : links_) {
      std::vector<std::unique_ptr<AgreementChannel>>& of_rank = channels_.emplace_back();
      for (int pool = 0; pool < pools; ++pool) {
        of_rank.push_back(std::make_unique<internal::LinkChannel>(
            link, internal::kFirstChannel + static_cast<uint64_t>(pool), kDeadline));
      }
    }
    return Status();
  }

  Status OfOnePool(size_t rank, size_t pool) {
    return internal::AgreeOnCall({channels_[rank][pool].get()}, {{IntentOfReserve()}}).failure;
  }
  Status OneAfterAnother(size_t rank) {
    Status status;
    for (size_t pool = 0; pool < channels_[rank].size() && status.ok(); ++pool) status = OfOnePool(rank, pool);
    return status;
  }
  Status InOneCall(size_t rank) {
    internal::PoolChannels channels;
    std::vector<internal::PoolInCall> pools;
    for (const std::unique_ptr<AgreementChannel>& channel : channels_[rank]) {
      channels.push_back(channel.get());
      pools.push_back({IntentOfReserve()});
    }
    return internal::AgreeOnCall(channels, pools).failure;
  }

  // Measures that many calls, after some that do not count.
  Result<SimulatedRound> Measure(int rounds, const Call& call) {
    if (Status status = Run(kWarmUp, call).status(); !status.ok()) return status;
    const std::vector<LinkTraffic> before = TrafficOfAll();
    const std::vector<std::vector<double>> times = COMMPOOL_TRY(Run(rounds, call));
    const std::vector<LinkTraffic> after = TrafficOfAll();
    SimulatedRound measures;
    measures.ranks = static_cast<int>(links_.size());
    measures.busiest = OfOneRound(before[0], after[0], rounds);
    for (size_t rank = 0; rank < times.size(); ++rank) {
      measures.median_us = std::max(measures.median_us, Median(times[rank]));
      measures.p99_us = std::max(measures.p99_us, Percentile99(times[rank]));
      if (rank == 0) continue;
      const Traffic other = OfOneRound(before[rank], after[rank], rounds);
      measures.other.messages = std::max(measures.other.messages, other.messages);
      measures.other.bytes = std::max(measures.other.bytes, other.bytes);
    }
    return measures;
  }

 private:
  static Traffic OfOneRound(const LinkTraffic& before, const LinkTraffic& after, int rounds) {
    return {static_cast<double>(after.messages - before.messages) / rounds,
            static_cast<double>(after.bytes - before.bytes) / rounds};
  }

  // Microseconds of each round on each rank.
  Result<std::vector<std::vector<double>>> Run(int rounds, const Call& call) {
    std::vector<std::vector<double>> times(channels_.size());
    std::vector<Status> statuses(channels_.size());
    ForEachRank(static_cast<int>(channels_.size()), [&](size_t rank) {
      using Clock = std::chrono::steady_clock;
      for (int round = 0; round < rounds && statuses[rank].ok(); ++round) {
        const Clock::time_point start = Clock::now();
        statuses[rank] = call(rank);
        times[rank].push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
    });
    if (Status status = FirstFailure(statuses); !status.ok()) return status;
    return times;
  }

  std::vector<LinkTraffic> TrafficOfAll() const {
    std::vector<LinkTraffic> all;
    for (const std::shared_ptr<HomeLink>& link : links_) all.push_back(link->traffic());
    return all;
  }

  std::vector<std::shared_ptr<HomeLink>> links_;
  std::vector<std::vector<std::unique_ptr<AgreementChannel>>> channels_;  // by rank
};

}  // namespace

Result<std::vector<SimulatedRound>> SimulateAgreement(int ranks, int pools, int rounds) {
  COMMPOOL_TRY(RaiseDescriptorLimit(ranks));
  UseSmallStacks();
  SimulatedRanks all;
  COMMPOOL_TRY(all.Open(ranks, pools));
  struct Way {
    int pools;
    PoolCalls calls;
    SimulatedRanks::Call call;
  };
  std::vector<Way> ways = {{1, PoolCalls::kOne, [&](size_t rank) { return all.OfOnePool(rank, 0); }}};
  if (pools > 1) {
    ways.push_back({pools, PoolCalls::kOneEach, [&](size_t rank) { return all.OneAfterAnother(rank); }});
    ways.push_back({pools, PoolCalls::kOne, [&](size_t rank) { return all.InOneCall(rank); }});
  }
  std::vector<SimulatedRound> found;
  for (const Way& way : ways) {
    SimulatedRound measures = COMMPOOL_TRY(all.Measure(rounds, way.call));
    measures.pools = way.pools;
    measures.calls = way.calls;
    found.push_back(measures);
  }
  return found;
}

double SlopeOfBytes(const std::vector<SimulatedRound>& sizes) {
  double x_mean = 0;
  double y_mean = 0;
  const auto count = static_cast<double>(sizes.size());
  for (const SimulatedRound& size : sizes) {
    x_mean += std::log(size.ranks) / count;
    y_mean += std::log(size.busiest.bytes) / count;
  }
  double products = 0;
  double squares = 0;
  for (const SimulatedRound& size : sizes) {
    const double x = std::log(size.ranks) - x_mean;
    products += x * (std::log(size.busiest.bytes) - y_mean);
    squares += x * x;
  }
  return products / squares;
}

}  // namespace commpool::cli
