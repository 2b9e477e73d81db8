#include "tools/stress/host/host_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "src/library/base/try.h"
#include "tools/common/process.h"

namespace commpool::cli {

namespace {

// Such as "985 refused pool_create", the last line of a sound run.
void ReadLastLine(const std::string& text, HostOutcome* outcome) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = end == std::string::npos ? 0 : text.rfind('\n', end) + 1;
  const std::string line = text.substr(begin, end == std::string::npos ? 0 : end + 1 - begin);
  const size_t space = line.find(' ');
  outcome->count = std::strtoull(line.c_str(), nullptr, 10);
  if (space == std::string::npos) return;
  const std::string rest = line.substr(space + 1);
  if (rest.starts_with("refused")) outcome->end = HostEnd::kRefused;
  if (rest.starts_with("served")) outcome->end = HostEnd::kServed;
  if (rest.starts_with("not reached")) outcome->end = HostEnd::kNotReached;
}

}  // namespace

std::string Describe(const HostRun& run) { return run.program + " " + run.resource + " " + std::to_string(run.nth); }

bool IsFailure(HostEnd end) {
  return end != HostEnd::kRefused && end != HostEnd::kServed && end != HostEnd::kNotReached;
}

std::string FindHostWorker() {
  const std::filesystem::path worker =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "host" / "host_worker";
  return access(worker.c_str(), X_OK) == 0 ? worker.string() : "";
}

Result<HostOutcome> RunHostWorker(const std::string& worker, const HostRun& run, std::chrono::seconds limit) {
  ProcessStart start = {worker, {worker, run.program, run.resource, std::to_string(run.nth)}};
  if (run.findings == Findings::kWithPlace) start.words.push_back("place");
  ProcessEnd end = COMMPOOL_TRY(RunProcess(start, OutputOf::kStdoutAndStderr, limit));
  HostOutcome outcome{.findings = std::move(end.output)};
  if (!end.in_time) {
    outcome.end = HostEnd::kHung;
  } else if (WIFSIGNALED(end.state)) {
    outcome.end = WTERMSIG(end.state) == SIGABRT ? HostEnd::kAborted : HostEnd::kCrashed;
  } else if (WEXITSTATUS(end.state) == 0) {
    ReadLastLine(outcome.findings, &outcome);
  }
  return outcome;
}

}  // namespace commpool::cli
