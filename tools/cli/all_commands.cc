#include "tools/cli/commands.h"

namespace commpool::cli {

void AddCommands(Command app) {
  AddInfo(app);
  AddAllReduce(app);
  AddAdvise(app);
  AddBench(app);
  AddReplay(app);
  AddShare(app);
  AddImport(app);
  AddEmulate(app);
  AddAudit(app);
  AddRun(app);
  AddReport(app);
}

}  // namespace commpool::cli
