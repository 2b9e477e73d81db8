// The subcommands of `commpool_stress`. The folder of each adds it.
#ifndef COMMPOOL_TOOLS_STRESS_COMMANDS_H_
#define COMMPOOL_TOOLS_STRESS_COMMANDS_H_

#include "tools/common/command.h"

namespace commpool::cli {

void AddStressOrder(Command app);
void AddStressRegistration(Command app);
void AddStressRanks(Command app);
void AddStressHost(Command app);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_COMMANDS_H_
