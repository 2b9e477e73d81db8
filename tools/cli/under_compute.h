// How much a collective slows compute that runs beside it, by the kind of its buffers. Training pays this, not only the
// collective's own time. Every rank makes the same calls.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/collective_timer.h"
#include "tools/cli/median.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

struct AddedTime {
  std::string kind;      // "plain", "local", "window", "zero-SM"
  double alone_us = 0;   // one collective without compute
  Spread added_us = {};  // to the compute, by one collective
};

struct UnderComputeRow {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;
  std::vector<AddedTime> kinds;  // the cheapest kinds first
};

struct UnderCompute {
  std::string compute;
  double kernel_us = 0;  // one kernel alone
  int rounds = 0;
  std::vector<UnderComputeRow> rows;
  std::vector<std::string> without;  // kinds that do not exist here, and why
};

// The kind that adds least. A later kind wins only where its whole interval lies below the other's. REQUIRES: not
// empty.
const AddedTime& LeastAdded(const std::vector<AddedTime>& kinds);

// `rounds` 0: chosen by the driver.
Result<UnderCompute> MeasureUnderCompute(const Ranks& ranks, const RankDevice& device,
                                         const std::vector<uint64_t>& sizes, int rounds);

nlohmann::json ToJson(const UnderCompute& measured);
void Print(const UnderCompute& measured);

}  // namespace commpool::cli
