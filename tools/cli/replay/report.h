// The results of a replay, as a row of the table and as JSON. Pure: any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/replay/replay_run.h"

namespace commpool::cli {

struct ReplayRow {
  std::string name;
  std::string mode;
  size_t events = 0;
  uint64_t peak_requested_bytes = 0;
  std::optional<double> pytorch_native;
  std::optional<double> pytorch_expandable;
  ReplayMeasures measures;
  // For a symmetric pool: its one reservation (`figures`), and another reservation, after which it reserves more
  // whenever it is exhausted.
  std::optional<uint64_t> reservation_bytes;
  uint64_t reserved_at_first = 0;
  std::optional<ReplayMeasures> again;
  std::optional<uint64_t> smallest_device_bytes;
  std::optional<ReplayMeasures> torch;  // the same trace in PyTorch's allocator

  double utilisation() const;
  std::optional<double> utilisation_again() const;
  // Relative to the peak requested, rounded up to 2 MiB.
  double smallest_device_ratio() const;
};

nlohmann::json ToJson(const ReplayRow& row);

// Prints a line for each trace, then the driver calls of each.
void PrintTable(const std::vector<ReplayRow>& rows);

}  // namespace commpool::cli
