#include "tools/cli/command.h"

namespace commpool::cli {

void AddCommands(Command app) {
  AddInfo(app);
  AddAllReduce(app);
}

}  // namespace commpool::cli
