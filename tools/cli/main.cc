// commpool: one program for looking at a machine, running the main job and measuring. One file a subcommand.
#include <iostream>

#include "tools/cli/command.h"

int main(int argc, char** argv) {
  CLI::App app("commpool: communicator-aware memory pools for multi-GPU programs", "commpool");
  app.require_subcommand(1);
  app.footer(
      "COMMPOOL_DRIVER=cuda|emulated|auto chooses the driver (default auto: GPUs where there are some).\n"
      "Examples:\n"
      "  commpool info\n"
      "  mpirun -np 4 commpool allreduce --register window --check\n"
      "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
      "  commpool bench make --bytes 512M\n"
      "  commpool replay tests/data/traces");
  commpool::cli::KeepCommandLine(argc, argv);
  int exit_code = commpool::cli::kSuccess;
  commpool::cli::AddInfo(app, exit_code);
  commpool::cli::AddAllReduce(app, exit_code);
  commpool::cli::AddAdvise(app, exit_code);
  commpool::cli::AddBench(app, exit_code);
  commpool::cli::AddReplay(app, exit_code);
  commpool::cli::AddStress(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int result = app.exit(error);
    return result == 0 ? 0 : commpool::cli::kFailed;
  } catch (const std::exception& error) {
    std::cerr << "commpool: " << error.what() << '\n';
    return commpool::cli::kFailed;
  }
  return exit_code;
}
