// What `commpool bench hot` found, as JSON and as a table.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_HOT_REPORT_H_
#define COMMPOOL_TOOLS_CLI_BENCH_HOT_REPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/cli/bench/hot_routes.h"

namespace commpool::cli {

// Who is compared: JSON's name and the table's. The first is commpool.
struct Contestant {
  std::string key;
  std::string title;
};

// By contestant's key, then by size, live blocks, threads or streams: a value for each round, in their order.
using Samples = std::map<std::string, std::map<uint64_t, std::vector<double>>>;

struct Findings {
  std::vector<Contestant> contestants;
  int rounds = 0;
  Samples pairs;    // nanoseconds
  Samples live;     // nanoseconds a pair
  Samples threads;  // pairs a second
  Samples mix;      // nanoseconds a replacement; by the number of streams
  std::map<std::string, RouteMeasures> routes;
};

// Medians; beside each other contestant the spread of the rounds' ratios; and of the live blocks what they add to the
// pair where the next smaller number lives.
nlohmann::json ToJson(const Findings& findings, const std::string& driver);

struct TableTitles {
  std::string driver;
  std::string live_bytes;
  std::string routed_bytes;
};
void Print(const Findings& findings, const TableTitles& titles);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_HOT_REPORT_H_
