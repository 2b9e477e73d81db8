#include "tools/cli/command.h"

namespace commpool::cli {

void AddCommands(Command app) {
  AddInfo(app);
  AddAllReduce(app);
  AddAdvise(app);
  AddBench(app);
  AddReplay(app);
  AddStress(app);
  AddEmulate(app);
}

}  // namespace commpool::cli
