// What the measurements of `commpool bench` share. One thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
#define COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_

#include "tools/cli/command.h"
#include "tools/cli/median.h"

namespace commpool::cli {

// Each file adds its subcommand to `bench`.
void AddBenchMake(CLI::App& bench, int& exit_code);
void AddBenchHot(CLI::App& bench, int& exit_code);
void AddBenchLookup(CLI::App& bench, int& exit_code);
void AddBenchThreshold(CLI::App& bench, int& exit_code);
void AddBenchRegistration(CLI::App& bench, int& exit_code);
void AddBenchAgreement(CLI::App& bench, int& exit_code);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
