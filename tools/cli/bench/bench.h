// Shared by the measurements of `commpool bench`. One thread.
#pragma once

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
