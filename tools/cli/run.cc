// commpool run: runs a program beside whose full caches others find memory, and whose ncclMemAlloc may come from pools.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/library/base/try.h"
#include "tools/cli/backing_names.h"
#include "tools/cli/commands.h"
#include "tools/cli/program_start.h"

namespace commpool::cli {

namespace {

enum class NcclMemory { kOwn, kPools };

const std::map<std::string, NcclMemory> kNcclMemory = {{"own", NcclMemory::kOwn}, {"pools", NcclMemory::kPools}};

struct RunOptions {
  NcclMemory nccl_memory = NcclMemory::kOwn;
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
  if (options.nccl_memory == NcclMemory::kOwn) return settings;
  settings += ",nccl-memory=pools,backing=" + std::to_string(static_cast<int>(options.backing));
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
  if (options.nccl_memory == NcclMemory::kOwn && (options.backing != Backing::kVmm || options.peers != "none")) {
    return Status(StatusCode::kInvalidArgument, "--backing and --peers are of pools: add --nccl-memory pools");
  }
  const std::string program = COMMPOOL_TRY(CheckPreload(words));
  if (options.nccl_memory == NcclMemory::kPools && Defines(program, "ncclMemAlloc")) {
    return Status(StatusCode::kNotSupported,
                  program + " has an NCCL of its own, linked statically: its ncclMemAlloc cannot be replaced");
  }
  Prepend("LD_PRELOAD", COMMPOOL_TRY(FindPreloaded("audit", "libcommpool_interpose.so")));
  setenv("COMMPOOL_RUN", SettingsOf(options).c_str(), 1);
  return StartInPlace(words);
}

}  // namespace

void AddRun(Command app) {
  const auto options = std::make_shared<RunOptions>();
  Command command = app.Add("run", "Run a program whose caches make room for NCCL: -- PROGRAM ARGUMENT...");
  AddChoice(command, "--nccl-memory", options->nccl_memory, kNcclMemory, "Where ncclMemAlloc has its memory from");
  AddChoice(command, "--backing", options->backing, BackingNames(), "What makes the memory of these pools");
  command.AddOption("--peers", options->peers, "Devices of the same process that may access it: none, all, or 1,2")
      .Called("DEVICES")
      .Checked(&WhyNoPeers)
      .ShowPreset();
  command.Footer(
      "Where a call of NCCL, cuBLAS or anybody runs out of memory, pools and PyTorch's cache give back what is idle, "
      "and\n"
      "it is made once more. With --nccl-memory pools an allocation is a whole segment, kept for the next of its "
      "size.\n"
      "Tables go to stderr at the end. The exit code is the program's.\n"
      "Examples:\n"
      "  commpool run -- torchrun --nproc-per-node 4 train.py\n"
      "  commpool run --nccl-memory pools -- ./all_reduce_perf -b 8M -e 1G -R 2\n"
      "  commpool emulate -- commpool run -- ./program    (without a GPU)");
  command.DoWithRest([options](const std::vector<std::string>& words) { return Run(*options, words); });
}

}  // namespace commpool::cli
