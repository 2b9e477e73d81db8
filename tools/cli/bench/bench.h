// Shared by the measurements of `commpool bench`. One thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
#define COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_

#include "tools/cli/median.h"
#include "tools/common/command.h"

namespace commpool::cli {

// Each file adds its subcommand to `bench`.
void AddBenchGrowth(Command bench);
void AddBenchHot(Command bench);
void AddBenchMemory(Command bench);
void AddBenchSleep(Command bench);
void AddBenchRegistration(Command bench);
void AddBenchAgreement(Command bench);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_BENCH_H_
