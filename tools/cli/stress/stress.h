// The subcommands of `commpool stress` that have files of their own.
#ifndef COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_
#define COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_

#include "tools/cli/command.h"

namespace commpool::cli {

void AddStressHost(Command stress_command);
void AddStressRegistration(Command stress_command);
void AddStressRanks(Command stress_command);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_
