// The ranks of `commpool_stress registration`: emulated devices of one process, one thread each, and two communicators:
// of all ranks and of some.
//
// Made and ended by one thread, which also calls Run.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"
#include "src/library/pool/runtime.h"

namespace commpool::cli {

struct StressRank {
  int number = 0;  // also the number of its device
  internal::PrimaryContext context;
  CUstream stream = nullptr;
  ncclComm_t home = nullptr;
  ncclComm_t second = nullptr;  // null on ranks outside of it, and where it has ended
};

class StressRanks {
 public:
  static Result<std::unique_ptr<StressRanks>> Make(const internal::Driver& driver, internal::Runtime& runtime,
                                                   int count);
  ~StressRanks();
  StressRanks(const StressRanks&) = delete;
  StressRanks& operator=(const StressRanks&) = delete;

  int count() const { return static_cast<int>(ranks_.size()); }
  // Makes sure that both communicators exist; the second has the ranks from `second_from` on. Makes those again that a
  // schedule ended.
  Status Connect(int second_from);
  // Calls body(rank) on one thread for each rank, with the rank's device current.
  void Run(const std::function<void(StressRank&)>& body);

 private:
  StressRanks(const internal::Driver& driver, internal::Runtime& runtime) : driver_(driver), runtime_(runtime) {}

  enum class Which { kHome, kSecond };
  static ncclComm_t& Of(StressRank& rank, Which which) { return which == Which::kHome ? rank.home : rank.second; }
  Status Join(Which which, int from);
  void Destroy(Which which);

  const internal::Driver& driver_;
  internal::Runtime& runtime_;
  std::vector<StressRank> ranks_;
  int second_from_ = 0;
};

}  // namespace commpool::cli
