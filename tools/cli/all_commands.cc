#include "tools/cli/command.h"

namespace commpool::cli {

void AddCommands(CLI::App& app, int& exit_code) {
  AddInfo(app, exit_code);
  AddAllReduce(app, exit_code);
  AddAdvise(app, exit_code);
  AddBench(app, exit_code);
  AddReplay(app, exit_code);
  AddStress(app, exit_code);
  AddEmulate(app, exit_code);
}

}  // namespace commpool::cli
