#include "tools/cli/replay/peers/peers.h"

#include <sys/wait.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/library/base/try.h"
#include "tools/common/process.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {kTorchNative, kTorchExpandable, kRmmPool, kRmmArena, kCudaAsync};
  return names;
}

bool IsTorch(const std::string& name) { return name == kTorchNative || name == kTorchExpandable; }
bool IsRmm(const std::string& name) { return name == kRmmPool || name == kRmmArena; }

// The path of this process's own program. A child under `commpool emulate` would read the link itself as its own.
std::string OwnFile() {
  std::error_code ignored;
  return std::filesystem::read_symlink(kOwnProgram, ignored).string();
}

// Writes enough digits to read the same number again.
std::string Exactly(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.begin(), text.end(), number).ptr};
}

std::vector<std::string> WordsFor(const PeerOptions& options, const std::string& name, const TraceChoice& traces,
                                  bool emulated) {
  std::vector<std::string> words = {"commpool"};
  if (emulated) words.insert(words.end(), {"emulate", "--", OwnFile()});
  words.insert(words.end(), {"replay", "--json", "--as", name, "--streams", std::to_string(traces.streams), "--scale",
                             Exactly(traces.scale)});
  if (IsTorch(name)) words.insert(words.end(), {"--torch-library", options.torch_library});
  if (IsRmm(name)) words.insert(words.end(), {"--rmm-library", options.rmm_library});
  words.insert(words.end(), traces.places.begin(), traces.places.end());
  return words;
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Runs this program as a new process and returns its stdout. PyTorch reads its settings when its library is loaded, and
// each allocator should begin with an empty device.
Result<std::string> RunAgain(const ProcessStart& start, int limit_s) {
  const ProcessEnd end = COMMPOOL_TRY(RunProcess(start, OutputOf::kStdout, std::chrono::seconds(limit_s)));
  if (!end.in_time) {
    return Status(StatusCode::kDeadlineExceeded, "it was ended after " + std::to_string(limit_s) + " s");
  }
  if (WIFEXITED(end.state) && WEXITSTATUS(end.state) == 0) return end.output;
  const std::string how = WIFEXITED(end.state) ? "exit code " + std::to_string(WEXITSTATUS(end.state))
                                               : "signal " + std::to_string(WTERMSIG(end.state));
  return Status(StatusCode::kDriverError, how + ": " + LastLine(end.output));
}

nlohmann::json RunPeer(const PeerOptions& options, const std::string& name, const TraceChoice& traces, bool emulated) {
  std::vector<std::string> variables;
  if (IsTorch(name)) {
    const bool expandable = name == kTorchExpandable;
    for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
      variables.push_back(std::string(variable) + "=expandable_segments:" + (expandable ? "True" : "False"));
    }
  }
  const Result<std::string> output =
      RunAgain({kOwnProgram, WordsFor(options, name, traces, emulated), variables}, options.limit_s);
  if (!output.ok()) return {{"failed", output.status().message()}};
  const nlohmann::json found = nlohmann::json::parse(*output, nullptr, false);
  if (found.is_discarded() || !found.contains("traces")) return {{"failed", "it wrote no result"}};
  return found["traces"];
}

const nlohmann::json* FindTrace(const nlohmann::json& rows, const nlohmann::json& name) {
  if (!rows.is_array()) return nullptr;
  for (const nlohmann::json& row : rows) {
    if (row["name"] == name) return &row;
  }
  return nullptr;
}

std::string Number(const nlohmann::json& row, const char* key, double factor) {
  if (!row.contains(key) || !row[key].is_number()) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", row[key].get<double>() * factor);
  return text.data();
}

void PrintRow(const std::string& trace, const std::string& name, const nlohmann::json& row) {
  if (row.contains("failed")) {
    std::printf("%-18s %-17s %s\n", trace.c_str(), name.c_str(), row["failed"].get<std::string>().c_str());
    return;
  }
  std::printf("%-18s %-17s %7s %10s %10s %12s %12s %8s\n", trace.c_str(), name.c_str(),
              Number(row, "utilisation", 100).c_str(), Number(row, "wall_ns_per_event", 1).c_str(),
              Number(row, "short_ns_per_event", 1).c_str(), Number(row, "long_us", 1).c_str(),
              Number(row, "driver_us", 1).c_str(), Number(row, "steady_driver_calls", 1).c_str());
}

}  // namespace

void AddPeerOptions(Command command, PeerOptions& options) {
  command.AddOption("--peers", options.beside, "Replay in these allocators too, each in a process of its own")
      .OneOf(Names())
      .SeparatedByCommas();
  command.AddOption("--as", options.as, "Replay in this one of them, in place of a pool").OneOf(Names());
  command
      .AddOption("--rmm-library", options.rmm_library,
                 "What tools/bench/build_rmm_allocator.sh built: RMM's pool and arena for --peers")
      .Called("FILE");
  command.AddOption("--peer-limit", options.limit_s, "Seconds after which a peer is ended")
      .Between(1, 3600)
      .ShowPreset();
}

Status CheckPeers(const PeerOptions& options) {
  std::vector<std::string> names = options.beside;
  if (!options.as.empty()) names.push_back(options.as);
  for (const std::string& name : names) {
    if (IsTorch(name) && options.torch_library.empty()) {
      return Status(StatusCode::kInvalidArgument, name + " needs --torch-library");
    }
    if (IsRmm(name) && options.rmm_library.empty()) {
      return Status(StatusCode::kInvalidArgument, name + " needs --rmm-library");
    }
  }
  return Status();
}

nlohmann::json RunPeers(const PeerOptions& options, const TraceChoice& traces, bool emulated) {
  nlohmann::json found = nlohmann::json::object();
  Progress progress("replay: peer", options.beside.size());
  for (const std::string& name : options.beside) {
    progress.Show(found.size(), name);
    found[name] = RunPeer(options, name, traces, emulated);
  }
  return found;
}

void PrintPeers(const nlohmann::json& own, const nlohmann::json& peers) {
  if (peers.empty()) return;
  std::printf(
      "# wall: of all calls; short: of those under 20 us, long: the sum of the others; driver us of what is seen\n");
  std::printf("%-18s %-17s %7s %10s %10s %12s %12s %8s\n", "trace", "allocator", "in use", "wall ns", "short ns",
              "long us", "driver us", "steady");
  for (const nlohmann::json& row : own) {
    const auto trace = row["name"].get<std::string>();
    PrintRow(trace, "commpool", row);
    for (const auto& [name, rows] : peers.items()) {
      if (const nlohmann::json* const other = FindTrace(rows, row["name"])) PrintRow(trace, name, *other);
    }
  }
  for (const auto& [name, rows] : peers.items()) {
    if (!rows.is_array()) std::printf("# %s: %s\n", name.c_str(), rows["failed"].get<std::string>().c_str());
  }
}

}  // namespace commpool::cli
