// commpool: looks at a machine, runs the main job, measures. One file for each subcommand.
#include <algorithm>

#include "commpool/commpool.h"
#include "tools/cli/commands.h"
#include "tools/common/program.h"

int main(int argc, char** argv) {
  using commpool::cli::VersionText;
  const std::string version =
      "commpool " + VersionText(COMMPOOL_VERSION) + ", library " + VersionText(commpool_version());
  std::vector<std::string> words(argv + 1, argv + argc);
  // A program and its own arguments follow, which may have dashes too.
  const std::string command = words.empty() ? "" : words.front();
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool starts_programs = command == "audit" || command == "emulate" || command == "run";
  if (dashes != words.end() && starts_programs) *dashes = commpool::cli::kDashes;
  return commpool::cli::RunProgram(
      {"commpool", "commpool: communicator-aware memory pools for multi-GPU programs", version,
       "COMMPOOL_DRIVER=cuda|emulated|auto chooses the driver (default auto: GPUs where there are some).\n"
       "Examples:\n"
       "  commpool info\n"
       "  mpirun -np 4 commpool allreduce --register window --check\n"
       "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
       "  commpool bench hot --sizes 512,1M\n"
       "  commpool emulate -- ./program    (a program of yours, on emulated GPUs)\n"
       "  commpool audit -- ./program      (says who asks for what memory)",
       commpool::cli::AddCommands},
      std::move(words));
}
