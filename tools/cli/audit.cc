// commpool audit: runs a program, and lists which of its code asked the driver and NCCL for memory, and for how much.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/cli/commands.h"
#include "tools/cli/program_start.h"
#include "tools/cli/sizes.h"

namespace commpool::cli {

namespace {

enum class By { kCupti, kPreload };

const std::map<std::string, By> kBy = {{"cupti", By::kCupti}, {"preload", By::kPreload}};
const std::map<std::string, int> kSignals = {
    {"none", 0}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"ALRM", SIGALRM}};

struct AuditOptions {
  By by = By::kCupti;
  std::string cupti;
  std::string record;
  std::string limit;
  int signal = SIGUSR2;
  bool python_stacks = false;
};

Result<std::string> SettingsOf(const AuditOptions& options) {
  for (const std::string& file : {options.cupti, options.record}) {
    if (file.find(',') == std::string::npos) continue;
    return Status(StatusCode::kInvalidArgument, file + " has a comma, which separates settings: name another file");
  }
  std::string settings = "process=" + std::to_string(getpid()) + ",signal=" + std::to_string(options.signal);
  if (options.by == By::kPreload) settings += ",by=preload";
  if (!options.cupti.empty()) settings += ",cupti=" + options.cupti;
  if (!options.record.empty()) settings += ",record=" + std::filesystem::absolute(options.record).string();
  if (options.python_stacks) settings += ",python-stacks=yes";
  if (options.limit.empty()) return settings;
  const uint64_t limit = COMMPOOL_TRY(internal::ParseBytes(options.limit));
  if (limit == 0) return Status(StatusCode::kInvalidArgument, "--limit 0 is none: leave it out, or write 60G");
  return settings + ",limit=" + std::to_string(limit);
}

// Returns only where the program cannot be started.
Status Run(const AuditOptions& options, const std::vector<std::string>& words) {
  if (words.empty()) {
    return Status(StatusCode::kInvalidArgument, "say which program: commpool audit -- PROGRAM [ARGUMENT...]");
  }
  COMMPOOL_TRY(CheckPreload(words));
  const std::string library = COMMPOOL_TRY(FindPreloaded("audit", "libcommpool_interpose.so"));
  setenv("COMMPOOL_AUDIT", COMMPOOL_TRY(SettingsOf(options)).c_str(), 1);
  Prepend("LD_PRELOAD", library);
  if (options.by == By::kCupti) setenv("CUDA_INJECTION64_PATH", library.c_str(), 1);
  return StartInPlace(words);
}

}  // namespace

void AddAudit(Command app) {
  const auto options = std::make_shared<AuditOptions>();
  Command command = app.Add("audit", "Run a program and say who asked for what memory: -- PROGRAM ARGUMENT...");
  AddChoice(command, "--by", options->by, kBy, "How the driver's calls are seen: CUPTI's callbacks, else a preload");
  command.AddOption("--cupti", options->cupti, "CUPTI's library; default: the program's own, else the system's")
      .Called("FILE");
  command.AddOption("--record", options->record, "Append each report to this file, as a line of JSON").Called("FILE");
  command.AddOption("--limit", options->limit, "Also report when a device first holds more, such as 60G")
      .Called("BYTES")
      .Checked(&WhyNoSize);
  AddChoice(command, "--signal", options->signal, kSignals, "Also report on this signal");
  command.AddFlag("--python-stacks", options->python_stacks, "Show where programs in Python asked");
  command.Footer(
      "Reports go to stderr: at the end, on the signal, at the limit, when memory first runs out. Each rank under\n"
      "mpirun and torchrun writes its own. The exit code is the program's.\n"
      "Examples:\n"
      "  commpool audit -- python3 train.py --batch 8\n"
      "  mpirun -np 4 commpool audit --record audit.jsonl -- ./ranks\n"
      "  commpool emulate -- commpool audit -- ./program    (without a GPU)");
  command.DoWithRest([options](const std::vector<std::string>& words) { return Run(*options, words); });
}

}  // namespace commpool::cli
