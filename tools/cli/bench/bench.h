// What the measurements of `commpool bench` share. One thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
#define COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_

#include <vector>

#include "tools/cli/command.h"

namespace commpool::cli {

// REQUIRES: not empty.
double Median(std::vector<double> values);

// Each file adds its subcommand to `bench`.
void AddBenchMake(CLI::App& bench, int& exit_code);
void AddBenchHot(CLI::App& bench, int& exit_code);
void AddBenchLookup(CLI::App& bench, int& exit_code);
void AddBenchThreshold(CLI::App& bench, int& exit_code);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
