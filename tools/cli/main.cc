// commpool: one program for looking at a machine, running the main job and measuring. One file a subcommand.
#include <iostream>
#include <string_view>
#include <vector>

#include "commpool/commpool.h"
#include "tools/cli/command.h"

namespace {

// "0.1.0", of COMMPOOL_VERSION.
std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("commpool: communicator-aware memory pools for multi-GPU programs", "commpool");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       "commpool " + VersionText(COMMPOOL_VERSION) + ", library " + VersionText(commpool_version()),
                       "Of the program and of the library that it runs on");
  app.get_formatter()->column_width(34);
  app.footer(
      "COMMPOOL_DRIVER=cuda|emulated|auto chooses the driver (default auto: GPUs where there are some).\n"
      "Examples:\n"
      "  commpool info\n"
      "  mpirun -np 4 commpool allreduce --register window --check\n"
      "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
      "  commpool bench make --bytes 512M\n"
      "  commpool emulate -- ./program    (a program of yours, on emulated GPUs)");
  commpool::cli::KeepCommandLine(argc, argv);
  int exit_code = commpool::cli::kSuccess;
  commpool::cli::AddCommands(app, exit_code);
  std::vector<char*> words(argv, argv + argc);
  // What follows is a program and its own arguments; the parser would take them for ours behind these two dashes.
  if (argc > 2 && std::string_view(argv[1]) == "emulate" && std::string_view(argv[2]) == "--") {
    words.erase(words.begin() + 2);
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    const std::string unknown = error.get_exit_code() == 0 ? "" : commpool::cli::UnknownSubcommand(app);
    if (!unknown.empty()) std::cerr << unknown << '\n';
    const int result = unknown.empty() ? app.exit(error) : commpool::cli::kFailed;
    return result == 0 ? 0 : commpool::cli::kFailed;
  } catch (const std::exception& error) {
    std::cerr << "commpool: " << error.what() << '\n';
    return commpool::cli::kFailed;
  }
  return exit_code;
}
