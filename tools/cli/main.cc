// commpool: one program for looking at a machine, running the main job and measuring. One file a subcommand.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "tools/cli/command.h"

namespace {

// "0.1.0", of COMMPOOL_VERSION.
std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// A command whose output nobody took, on a full disk say, has failed.
int AfterOutput(int exit_code) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "commpool: cannot write to stdout: %s\n", std::strerror(errno));
  return exit_code == commpool::cli::kSuccess ? commpool::cli::kFailed : exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  commpool::cli::KeepCommandLine(argc, argv);
  commpool::cli::CommandLine line(
      "commpool", "commpool: communicator-aware memory pools for multi-GPU programs",
      "commpool " + VersionText(COMMPOOL_VERSION) + ", library " + VersionText(commpool_version()));
  commpool::cli::Command program = line.program();
  program.NeedSubcommand();
  program.Footer(
      "COMMPOOL_DRIVER=cuda|emulated|auto chooses the driver (default auto: GPUs where there are some).\n"
      "Examples:\n"
      "  commpool info\n"
      "  mpirun -np 4 commpool allreduce --register window --check\n"
      "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
      "  commpool bench make --bytes 512M\n"
      "  commpool emulate -- ./program    (a program of yours, on emulated GPUs)");
  commpool::cli::AddCommands(program);
  std::vector<std::string> words(argv + 1, argv + argc);
  // What follows is a program and its own arguments; the parser would take them for ours behind these two dashes.
  if (words.size() > 1 && words[0] == "emulate" && words[1] == "--") words.erase(words.begin() + 1);
  return AfterOutput(line.Run(std::move(words)));
}
