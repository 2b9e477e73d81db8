// commpool: one program for looking at a machine, running the main job and measuring. One file a subcommand.
#include "commpool/commpool.h"
#include "tools/cli/commands.h"
#include "tools/common/program.h"

int main(int argc, char** argv) {
  using commpool::cli::VersionText;
  const std::string version =
      "commpool " + VersionText(COMMPOOL_VERSION) + ", library " + VersionText(commpool_version());
  std::vector<std::string> words(argv + 1, argv + argc);
  // What follows is a program and its own arguments; the parser would take them for ours behind these two dashes.
  if (words.size() > 1 && words[0] == "emulate" && words[1] == "--") words.erase(words.begin() + 1);
  return commpool::cli::RunProgram(
      {"commpool", "commpool: communicator-aware memory pools for multi-GPU programs", version,
       "COMMPOOL_DRIVER=cuda|emulated|auto chooses the driver (default auto: GPUs where there are some).\n"
       "Examples:\n"
       "  commpool info\n"
       "  mpirun -np 4 commpool allreduce --register window --check\n"
       "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
       "  commpool bench make --bytes 512M\n"
       "  commpool emulate -- ./program    (a program of yours, on emulated GPUs)",
       commpool::cli::AddCommands},
      std::move(words));
}
