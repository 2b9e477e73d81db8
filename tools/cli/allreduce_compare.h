// commpool allreduce --compare: a pool's buffers beside equal ones that are made and registered one by one, in turn in
// one run. One thread for each rank.
#ifndef COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_
#define COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_

#include "tools/cli/allreduce.h"
#include "tools/common/command.h"

namespace commpool::cli {

enum class Comparison {
  kNone,
  kByHand,  // a pool's buffers, and equal ones made and registered one by one
  kScopes   // buffers that scopes route by size, as advised, and the best kind of each size
};

// Prints the table or JSON and records it, on rank 0; returns the exit code.
Result<int> RunComparison(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                          Comparison comparison, const OutputOptions& output);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_ALLREDUCE_COMPARE_H_
