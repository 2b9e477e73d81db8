// The subcommands of `commpool_stress`. The folder of each adds it.
#pragma once

#include "tools/common/command.h"

namespace commpool::cli {

void AddStressOrder(Command app);
void AddStressRegistration(Command app);
void AddStressRanks(Command app);
void AddStressHost(Command app);

}  // namespace commpool::cli
