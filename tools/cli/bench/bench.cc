#include "tools/cli/bench/bench.h"

#include <algorithm>

namespace commpool::cli {

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measurements, each beside a peer or a limit in the same run");
  bench->require_subcommand(1);
  AddBenchMake(*bench, exit_code);
  AddBenchHot(*bench, exit_code);
  AddBenchLookup(*bench, exit_code);
  AddBenchThreshold(*bench, exit_code);
}

}  // namespace commpool::cli
