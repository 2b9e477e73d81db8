// The results of `commpool bench hot`, as JSON and as a table.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/cli/bench/hot_routes.h"

namespace commpool::cli {

// Who is compared: the key in JSON and the name in the table. The first is commpool.
struct Contestant {
  std::string key;
  std::string title;
};

// By contestant's key, then by size, live blocks, threads or streams: one value for each round, in order.
using Samples = std::map<std::string, std::map<uint64_t, std::vector<double>>>;

struct Findings {
  std::vector<Contestant> contestants;
  int rounds = 0;
  Samples pairs;    // nanoseconds
  Samples live;     // nanoseconds for a pair
  Samples threads;  // pairs per second
  Samples mix;      // nanoseconds for a replacement; by the number of streams
  std::map<std::string, RouteMeasures> routes;
};

// Medians; for each other contestant the spread of the rounds' ratios; for live blocks what they add to the time of the
// next smaller number.
nlohmann::json ToJson(const Findings& findings, const std::string& driver);

struct TableTitles {
  std::string driver;
  std::string live_bytes;
  std::string routed_bytes;
};
void Print(const Findings& findings, const TableTitles& titles);

}  // namespace commpool::cli
