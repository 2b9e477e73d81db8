// The subcommands of `commpool`. The file of each adds it.
#pragma once

#include "tools/common/command.h"

namespace commpool::cli {

// Adds all subcommands. The program that tools/quickstart builds has only those that it needs.
void AddCommands(Command app);

void AddInfo(Command app);
void AddAllReduce(Command app);
void AddAdvise(Command app);
void AddBench(Command app);
void AddReplay(Command app);
void AddShare(Command app);
void AddImport(Command app);
void AddEmulate(Command app);
void AddAudit(Command app);
void AddRun(Command app);
void AddReport(Command app);

}  // namespace commpool::cli
