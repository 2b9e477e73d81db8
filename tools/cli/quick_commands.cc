#include "tools/cli/command.h"

namespace commpool::cli {

void AddCommands(CLI::App& app, int& exit_code) {
  AddInfo(app, exit_code);
  AddAllReduce(app, exit_code);
}

}  // namespace commpool::cli
