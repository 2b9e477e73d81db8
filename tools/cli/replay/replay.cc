// commpool replay: replays recorded traces through the public API, event by event.
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/library/base/try.h"
#include "tools/cli/backing_names.h"
#include "tools/cli/commands.h"
#include "tools/cli/replay/alternation.h"
#include "tools/cli/replay/least_reservation.h"
#include "tools/cli/replay/peers/peer_allocator.h"
#include "tools/cli/replay/peers/peers.h"
#include "tools/cli/replay/replay_run.h"
#include "tools/cli/replay/report.h"
#include "tools/cli/torch_library.h"
#include "tools/common/progress.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

namespace {

struct Arguments {
  TraceChoice traces;
  PoolChoice pool;
  double reserve = 1.04;
  bool smallest = false;
  bool alternate = false;
  double seconds = 8;
  PeerOptions peers;
  OutputOptions output;
};

const std::map<std::string, ReplayMode> kModes = {
    {"expandable", ReplayMode::kExpandable}, {"fixed", ReplayMode::kFixed}, {"symmetric", ReplayMode::kSymmetric}};

// PyTorch's driver calls cannot be counted from outside: a call that takes longer than this has made some.
constexpr uint64_t kTorchDriverNs = 20'000;

// PyTorch's allocator under a replayed trace.
class TorchAllocator : public ReplayedAllocator {
 public:
  explicit TorchAllocator(const TorchLibrary& torch) : torch_(torch) {}
  ~TorchAllocator() override { torch_.empty_cache(); }

  void* Allocate(uint64_t bytes, CUstream stream) override { return torch_.allocate(bytes, stream); }
  bool Free(void* block) override { return torch_.free(block), true; }
  bool RecordStream(void* block, CUstream stream) override { return torch_.record_stream(block, stream), true; }
  Status failure() const override { return Status(StatusCode::kOutOfMemory, "PyTorch's allocator is out of memory"); }
  bool CalledDriver(uint64_t ns) override { return ns > kTorchDriverNs; }
  DriverCallsByName Calls() const override { return {}; }

 private:
  TorchLibrary torch_;
};

void AddTraceOptions(Command command, TraceChoice& choice) {
  command.AddOption("TRACE", choice.places, "Files NAME.trace or NAME.trace.xz, or folders of them").Required();
  command.AddOption("--streams", choice.streams, "Streams to spread a trace over").Between(1, 64).ShowPreset();
  command.AddOption("--scale", choice.scale, "Multiplies all sizes").Between(0.01, 100.0).ShowPreset();
}

// Scaled and spread.
Result<std::vector<Trace>> ReadTraces(const TraceChoice& choice) {
  const std::vector<std::string> files = COMMPOOL_TRY(FindTraces(choice.places));
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    Trace trace = COMMPOOL_TRY(ReadTrace(file));
    if (choice.scale != 1) Scale(trace, choice.scale);
    if (choice.streams > 1) SpreadOverStreams(trace, choice.streams);
    traces.push_back(std::move(trace));
  }
  return traces;
}

// PyTorch reads its setting when its library is loaded, so the process must start with it.
Result<std::optional<TorchLibrary>> OpenTorch(const SoloDevice& device, const Arguments& arguments) {
  const PeerOptions& peers = arguments.peers;
  if (peers.torch_library.empty() || !peers.beside.empty() || !peers.as.empty()) return std::optional<TorchLibrary>();
  if (device.emulated() && !arguments.alternate) {
    return Status(StatusCode::kNotSupported, "PyTorch's allocator needs a GPU");
  }
  const char* const setting = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  if (setting == nullptr || std::string(setting).find("expandable_segments:True") == std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  "--torch-library compares with expandable segments: start this command with "
                  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  }
  const TorchLibrary torch = COMMPOOL_TRY(TorchLibrary::Open(peers.torch_library));
  return std::optional(torch);
}

Result<ReplayRow> Measure(SoloDevice& device, const Trace& trace, const Arguments& arguments,
                          const std::optional<TorchLibrary>& torch) {
  ReplayRow row;
  row.name = trace.name;
  row.mode = arguments.peers.as.empty() ? NameOf(kModes, arguments.pool.mode) : arguments.peers.as;
  row.events = trace.events.size();
  row.peak_requested_bytes = trace.peak_requested_bytes;
  row.pytorch_native = trace.pytorch_native;
  row.pytorch_expandable = trace.pytorch_expandable;
  if (!arguments.peers.as.empty()) {
    row.measures = COMMPOOL_TRY(ReplayInPeer(device, trace, arguments.peers));
    return row;
  }
  PoolChoice choice = arguments.pool;
  if (choice.mode == ReplayMode::kSymmetric) {
    choice.reserve_bytes = static_cast<uint64_t>(static_cast<double>(trace.peak_requested_bytes) * arguments.reserve);
    row.reserved_at_first = choice.reserve_bytes;
    row.again = COMMPOOL_TRY(ReplayInPool(device, trace, choice));
    row.reservation_bytes = choice.reserve_bytes = FindLeastReservation(trace);
  }
  row.measures = COMMPOOL_TRY(ReplayInPool(device, trace, choice));
  if (torch) {
    TorchAllocator allocator(*torch);
    row.torch = COMMPOOL_TRY(Replay(device, trace, allocator));
  }
  if (!arguments.smallest) return row;
  row.smallest_device_bytes = COMMPOOL_TRY(FindSmallestDevice(device, trace, choice, row.measures.peak_reserved_bytes));
  return row;
}

void Print(const SoloDevice& device, const std::vector<ReplayRow>& rows) {
  std::cout << "# " << device.driver().description
            << "\n# utilisation is peak requested / peak reserved, in percent; native and expand. are PyTorch's, where "
               "the trace was recorded"
            << "\n# symmetric: in use is with the least single reservation; again, with --reserve times the peak "
               "requested, and then whatever was missing"
            << "\n# smallest: device on which it completes / peak requested; steady: driver calls in the second half\n"
            << (device.emulated() ? "# driver us is modelled; ns/event is of events without a driver call\n"
                                  : "# driver us is measured, and left out of ns/event\n")
            << std::flush;
  PrintTable(rows);
}

AlternationRow AlternateWithTorch(SoloDevice& device, const Trace& trace, const Arguments& arguments,
                                  const TorchLibrary& torch) {
  AlternationRow row{.name = trace.name, .events = trace.events.size(), .measures = {}, .failed = {}};
  Result<std::unique_ptr<PoolAllocator>> pool = PoolAllocator::Create(device, arguments.pool);
  Status status = pool.status();
  if (pool.ok()) {
    TorchAllocator allocator(torch);
    Result<AlternationMeasures> measures = Alternate(device, trace, **pool, allocator, arguments.seconds);
    status = (*pool)->Close();
    if (measures.ok()) row.measures = std::move(*measures);
    if (!measures.ok()) status = measures.status();
  }
  if (!status.ok()) row.failed = status.message();
  return row;
}

Result<int> RunInTurns(SoloDevice& device, const std::vector<Trace>& traces, const Arguments& arguments,
                       const std::optional<TorchLibrary>& torch) {
  if (!torch || arguments.pool.mode == ReplayMode::kSymmetric) {
    return Status(StatusCode::kNotSupported,
                  "--alternate takes turns with PyTorch's expandable segments, in a pool that grows: it needs "
                  "--torch-library, and no peers");
  }
  std::vector<AlternationRow> rows;
  nlohmann::json results = {{"driver", device.driver().description},
                            {"streams", arguments.traces.streams},
                            {"traces", nlohmann::json::array()}};
  std::optional<Progress> progress(std::in_place, "replay: trace", traces.size());
  for (const Trace& trace : traces) {
    progress->Show(rows.size(), trace.name);
    rows.push_back(AlternateWithTorch(device, trace, arguments, *torch));
    results["traces"].push_back(ToJson(rows.back()));
  }
  progress.reset();
  return Report(arguments.output, device.driver().description, results, [&] {
    std::cout << "# " << device.driver().description
              << "\n# ns of an event whose call takes less than 20 us, medians of rounds; ratio: of a round, pool / "
                 "PyTorch expandable, with its interval at 95 %\n# wall ratio: of all calls; long: us in the longer "
                 "ones, a pass through the second half\n"
              << (device.emulated() ? "# on the emulator the times mean nothing\n" : "") << std::flush;
    PrintTable(rows);
  });
}

// Makes a failure of what the user asked for a refusal: the library refuses the combination too.
Status Refusal(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? Status(StatusCode::kNotSupported, status.message()) : status;
}

Result<int> ReplayAll(SoloDevice& device, const std::vector<Trace>& traces, const Arguments& arguments) {
  const std::optional<TorchLibrary> torch = COMMPOOL_TRY(OpenTorch(device, arguments));
  if (arguments.alternate) return RunInTurns(device, traces, arguments, torch);
  std::vector<ReplayRow> rows;
  nlohmann::json results = {{"driver", device.driver().description},
                            {"streams", arguments.traces.streams},
                            {"scale", arguments.traces.scale},
                            {"traces", nlohmann::json::array()}};
  std::optional<Progress> progress(std::in_place, "replay: trace", traces.size());
  for (const Trace& trace : traces) {
    progress->Show(rows.size(), trace.name);
    Result<ReplayRow> row = Measure(device, trace, arguments, torch);
    if (!row.ok() && !arguments.peers.as.empty()) {
      results["traces"].push_back({{"name", trace.name}, {"failed", row.status().message()}});
      continue;
    }
    if (!row.ok()) return row.status();
    results["traces"].push_back(ToJson(*row));
    rows.push_back(std::move(*row));
  }
  progress.reset();
  const bool emulated = device.emulated();
  results["peers"] = RunPeers(arguments.peers, arguments.traces, emulated);
  return Report(arguments.output, device.driver().description, results, [&] {
    Print(device, rows);
    PrintPeers(results["traces"], results["peers"]);
  });
}

Result<int> Run(const Arguments& arguments) {
  if (Status status = CheckPeers(arguments.peers); !status.ok()) return Refusal(status);
  const std::vector<Trace> traces = COMMPOOL_TRY(ReadTraces(arguments.traces));
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(
      arguments.traces.streams, arguments.alternate ? DriverTimes::kUnmeasured : DriverTimes::kMeasured));
  const Result<int> done = ReplayAll(*device, traces, arguments);
  return done.ok() ? done : Refusal(done.status());
}

}  // namespace

void AddReplay(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("replay", "Recorded traces of allocations, replayed in a pool of one device");
  command.Footer(
      "Examples:\n"
      "  commpool replay tests/data/traces\n"
      "  commpool replay --mode fixed --smallest tests/data/traces/resnet50.trace.xz");
  AddTraceOptions(command, arguments->traces);
  AddChoice(command, "--mode", arguments->pool.mode, kModes, "Of the pool");
  AddChoice(command, "--backing", arguments->pool.backing, BackingNames(), "What the pool is made of");
  AddLives(command, arguments->pool.streams, "Whether the pool may rely on its streams to last");
  command
      .AddOption("--reserve", arguments->reserve,
                 "What a symmetric pool reserves before it reserves again, times the peak requested")
      .Between(1.0, 10.0)
      .ShowPreset();
  command.AddFlag("--smallest", arguments->smallest,
                  "Search the smallest device on which the trace completes, to 2 MiB");
  command
      .AddOption("--torch-library", arguments->peers.torch_library,
                 "What tools/bench/build_torch_allocator.sh built: for --peers; without them, PyTorch's expandable "
                 "segments as well")
      .Called("FILE");
  command.AddFlag("--alternate", arguments->alternate,
                  "Pool and PyTorch's expandable segments in turns of 64 events, in one process: the host's time of an "
                  "event");
  command.AddOption("--seconds", arguments->seconds, "Of --alternate: about so long a trace, once it was played")
      .Between(0.0, 3600.0)
      .ShowPreset();
  AddPeerOptions(command, arguments->peers);
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
