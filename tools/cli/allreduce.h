// The all-reduce benchmark: pool, register, reserve, scope, all-reduce.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "tools/cli/nccl_log.h"
#include "tools/cli/ranks.h"
#include "tools/common/command.h"

namespace commpool::cli {

struct AllReduceOptions {
  Backing backing = Backing::kVmm;
  Location location = Location::kDevice;
  UsedRegistration asked = UsedRegistration::kNone;
  std::vector<uint64_t> sizes;  // bytes, ascending
  int iterations = 0;           // 0: chosen by the driver and the size
  bool check = false;
};

struct AllReduceRow {
  uint64_t bytes = 0;
  double time_us = 0;     // of the slowest rank, mean over the iterations
  double algbw_gbps = 0;  // bytes / time
  double busbw_gbps = 0;  // algbw * 2 (ranks - 1) / ranks: the load of the links
  long wrong = -1;        // wrong elements on all ranks; -1: not checked
  UsedRegistration used = UsedRegistration::kNone;
  bool could_use_local = false;
};

struct AllReduceReport {
  std::vector<AllReduceRow> rows;
  Status refused;  // why the combination cannot run; OK where it can
  Status failed;
};

// Whether NCCL's log shows that NCCL did what was asked: an ExitCode.
int Judge(const AllReduceOptions& options, const std::vector<AllReduceRow>& rows);

// A sentence with the likely reason where the requested registration had no effect on some row (for `local`: on every
// row); else empty.
std::string WhyUnused(const AllReduceOptions& options, const std::vector<AllReduceRow>& rows, int ranks);

// Collective over the ranks. The pool is closed before it returns.
AllReduceReport RunAllReduce(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                             NcclLog& log);

// What a pool's buffers are measured beside, in turn in one run.
enum class Comparison {
  kNone,
  kByHand,  // a pool's buffers, and equal ones made and registered one by one
  kScopes   // buffers that scopes route by size, as advised, and the best kind of each size
};

// Prints the table or JSON and records it, on rank 0; returns the exit code.
Result<int> RunComparison(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                          Comparison comparison, const OutputOptions& output);

}  // namespace commpool::cli
