// What an audit has found, as a table for people and a line of JSON for programs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/interpose/audit/ledger.h"

namespace commpool::audit {

class Audit;

struct DeviceSum {
  int device = 0;
  int64_t attributed = 0;               // what rows of device memory hold, the driver's pools, and its graphs
  int64_t pools = 0;                    // of it: what the driver's pools hold
  int64_t graphs = 0;                   // of it: what the driver holds for graphs
  std::optional<int64_t> used;          // since the start; nothing where the driver does not tell
  bool started_before_context = false;  // else the context's share is not in `used`
};

struct ReportData {
  std::string reason;
  std::string how_seen;
  std::vector<DeviceSum> devices;
  std::map<RowKey, Row> rows;
  std::vector<StackSum> stacks;
};

ReportData Gather(Audit& audit, const std::string& reason);
std::string TableOf(const ReportData& data);
std::string JsonOf(const ReportData& data);
// The table to stderr; the line to the end of a file, where one is named.
void Write(const ReportData& data, const std::string& record);

}  // namespace commpool::audit
