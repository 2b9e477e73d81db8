// commpool allreduce --compare by-hand: the pool's buffers beside the same, made and registered one by one, in turn in
// one run. One thread a rank.
#ifndef COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_
#define COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_

#include "tools/cli/allreduce.h"
#include "tools/common/command.h"

namespace commpool::cli {

enum class Comparison {
  kNone,
  kByHand,  // a pool's buffers and the same made and registered one by one
  kScopes   // those that scopes route by size, as advised, and the best kind of each size
};

// Prints the table or JSON and records it, on rank 0; returns the exit code.
Result<int> RunComparison(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                          Comparison comparison, const OutputOptions& output);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_
