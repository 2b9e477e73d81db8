// commpool run: runs a program whose ncclMemAlloc comes from pools.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/library/base/try.h"
#include "tools/cli/backing_names.h"
#include "tools/cli/commands.h"
#include "tools/cli/program_start.h"

namespace commpool::cli {

namespace {

struct RunOptions {
  Backing backing = Backing::kVmm;
  std::string peers = "none";
};

// "none", "all" or ordinals with commas.
std::string WhyNoPeers(const std::string& text) {
  const bool ordinals = !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
  return text == "none" || text == "all" || ordinals ? "" : text + " is none of none|all|DEVICE,...";
}

std::string SettingsOf(const RunOptions& options) {
  std::string settings = "process=" + std::to_string(getpid());
  settings += ",backing=" + std::to_string(static_cast<int>(options.backing));
  if (options.peers == "none") return settings;
  std::string peers = options.peers;
  for (char& letter : peers) letter = letter == ',' ? ' ' : letter;  // a comma separates settings
  return settings + ",peers=" + peers;
}

// Returns only where the program cannot be started.
Status Run(const RunOptions& options, const std::vector<std::string>& words) {
  if (words.empty()) {
    return Status(StatusCode::kInvalidArgument, "say which program: commpool run -- PROGRAM [ARGUMENT...]");
  }
  const std::string program = COMMPOOL_TRY(CheckPreload(words));
  if (Defines(program, "ncclMemAlloc")) {
    return Status(StatusCode::kNotSupported,
                  program + " has an NCCL of its own, linked statically: its ncclMemAlloc cannot be replaced");
  }
  Prepend("LD_PRELOAD", COMMPOOL_TRY(FindPreloaded("nccl_memory", "libcommpool_run.so")));
  setenv("COMMPOOL_RUN", SettingsOf(options).c_str(), 1);
  return StartInPlace(words);
}

}  // namespace

void AddRun(Command app) {
  const auto options = std::make_shared<RunOptions>();
  Command command = app.Add("run", "Run a program with ncclMemAlloc from pools: -- PROGRAM ARGUMENT...");
  AddChoice(command, "--backing", options->backing, BackingNames(), "What makes the memory");
  command.AddOption("--peers", options->peers, "Devices of the same process that may access it: none, all, or 1,2")
      .Called("DEVICES")
      .Checked(&WhyNoPeers)
      .ShowPreset();
  command.Footer(
      "An allocation is a whole segment, which stays whole and is kept for the next one of its size. Statistics go to\n"
      "stderr at the end. The exit code is the program's.\n"
      "Examples:\n"
      "  commpool run -- ./all_reduce_perf -b 8M -e 1G -R 2\n"
      "  mpirun -np 4 commpool run --backing nccl -- ./ranks\n"
      "  commpool emulate -- commpool run -- ./program    (without a GPU)");
  command.DoWithRest([options](const std::vector<std::string>& words) { return Run(*options, words); });
}

}  // namespace commpool::cli
