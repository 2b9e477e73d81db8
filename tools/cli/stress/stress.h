// The subcommands of `commpool stress` that have files of their own.
#ifndef COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_
#define COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_

#include "tools/cli/command.h"

namespace commpool::cli {

void AddStressHost(CLI::App& stress_command, int& exit_code);
void AddStressRegistration(CLI::App& stress_command, int& exit_code);
void AddStressRanks(CLI::App& stress_command, int& exit_code);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_STRESS_STRESS_H_
