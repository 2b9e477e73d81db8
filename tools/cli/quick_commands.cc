#include "tools/cli/commands.h"

namespace commpool::cli {

void AddCommands(Command app) {
  AddInfo(app);
  AddAllReduce(app);
}

}  // namespace commpool::cli
