// commpool bench hot: a cached allocation and its free, and a mix of large ones, beside mimalloc; on a GPU also beside
// cudaMallocAsync and PyTorch's allocator, in the same run.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "commpool/pool.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/shared_library.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/hot_loops.h"
#include "tools/cli/bench/hot_report.h"
#include "tools/cli/bench/hot_routes.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::vector<std::string> sizes = {"512", "4K", "64K", "1M", "2M", "8M", "64M", "256M", "1G"};
  std::vector<size_t> live = {1, 1000, 100'000};
  std::vector<size_t> threads = {1, 2, 4, 8};
  std::vector<size_t> mix = {1, 2};
  std::string mode = "fixed";
  std::string live_bytes = "512";
  bool pinned = false;
  int rounds = 7;
  double round_ms = 5;
  std::vector<std::string> routes;
  std::string torch_library;
  OutputOptions output;
};

// kNotFound with the package to install.
Result<HotMimalloc> OpenMimalloc() {
  Result<internal::SharedLibrary> library = internal::SharedLibrary::Open("libmimalloc.so.2");
  if (!library.ok()) {
    return Status(StatusCode::kNotFound,
                  "mimalloc is not here (" + library.status().message() +
                      "): tools/setup installs it; libmimalloc.so.2 on LD_LIBRARY_PATH does too");
  }
  HotMimalloc mimalloc;
  mimalloc.allocate = reinterpret_cast<decltype(mimalloc.allocate)>(library->Symbol("mi_malloc"));
  mimalloc.free = reinterpret_cast<decltype(mimalloc.free)>(library->Symbol("mi_free"));
  if (mimalloc.allocate == nullptr || mimalloc.free == nullptr) {
    return Status(StatusCode::kNotFound, library->file() + " is not mimalloc");
  }
  return mimalloc;
}

// PyTorch's library reads once, from the environment, which of its two allocators it uses.
Contestant PyTorchsOwn() {
  for (const char* const variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && std::string(value).find("expandable_segments:True") != std::string::npos) {
      return {"pytorch_expandable", "PyTorch expand."};
    }
  }
  return {"pytorch", "PyTorch"};
}

struct Contender : Contestant {
  std::function<HotAllocator(size_t)> on_stream;  // by the stream's number
};

// Everything is measured in rounds, forwards and backwards, so that a drift of the machine favours nobody.
class Bench {
 public:
  Bench(SoloDevice& device, const Arguments& arguments, std::vector<uint64_t> sizes, uint64_t live_bytes,
        size_t streams)
      : device_(device), arguments_(arguments), sizes_(std::move(sizes)), live_bytes_(live_bytes), streams_(streams) {}

  Status AddContenders() {
    COMMPOOL_TRY(AddPool({"commpool", "commpool"}, {.streams = Streams::kOutlive}));
    COMMPOOL_TRY(AddPool({"commpool_may_die", "streams may die"}, {.streams = Streams::kMayDie}));
    if (arguments_.pinned) COMMPOOL_TRY(AddPinned());
    HotMimalloc mimalloc = COMMPOOL_TRY(OpenMimalloc());
    contenders_.push_back({{"mimalloc", "mimalloc"}, [mimalloc](size_t) { return HotAllocator(mimalloc); }});
    return device_.emulated() ? Status() : AddDeviceContenders();
  }

  Result<Findings> Measure() {
    const uint64_t rounds = static_cast<uint64_t>(arguments_.rounds) + 1;  // the first is not counted
    Progress progress("bench hot: round", rounds);
    for (uint64_t round = 0; round < rounds; ++round) {
      for (size_t turn = 0; turn < contenders_.size(); ++turn) {
        const Contender& contender = contenders_[round % 2 == 0 ? turn : contenders_.size() - 1 - turn];
        progress.Show(round, contender.title);
        COMMPOOL_TRY(MeasureOne(contender, round > 0));
      }
    }
    Result<std::map<std::string, RouteMeasures>> routes =
        MeasureRoutes(arguments_.routes, pools_.front(), device_.streams().front(),
                      {.bytes = sizes_.front(), .rounds = arguments_.rounds, .round_ns = arguments_.round_ms * 1e6});
    if (!routes.ok()) return routes.status();
    findings_.routes = std::move(*routes);
    findings_.rounds = arguments_.rounds;
    findings_.contestants.assign(contenders_.begin(), contenders_.end());
    return findings_;
  }

 private:
  Status MakePool(const Contestant& contestant, PoolOptions options) {
    options.name = contestant.key;
    Result<Pool> pool = Pool::create(options);
    if (pool.ok()) pools_.push_back(std::move(*pool));
    return pool.status();
  }

  Status AddPool(Contestant contestant, PoolOptions options) {
    options.mode = arguments_.mode == "expandable" ? Mode::kExpandable : Mode::kFixed;
    COMMPOOL_TRY(MakePool(contestant, options));
    // A pool whose streams are promised promises them for all pools, so each pool has its own streams.
    const size_t first = (pools_.size() - 1) * streams_;
    contenders_.push_back({std::move(contestant), [this, first, handle = pools_.back().handle()](size_t stream) {
                             return HotAllocator(HotPool{handle, device_.streams()[first + stream]});
                           }});
    return Status();
  }

  // Its blocks belong to no stream, as PyTorch's pinned tensors do.
  Status AddPinned() {
    Contestant contestant{"commpool_pinned", "pinned"};
    COMMPOOL_TRY(MakePool(contestant, {.backing = Backing::kPinned}));
    contenders_.push_back({std::move(contestant), [handle = pools_.back().handle()](size_t) {
                             return HotAllocator(HotPool{handle, COMMPOOL_NO_STREAM});
                           }});
    return Status();
  }

  Status AddDeviceContenders() {
    async_ = COMMPOOL_TRY(AsyncPool::Create(device_.driver(), UINT64_MAX));
    contenders_.push_back({{"cuda_async", "cudaMallocAsync"}, [this](size_t stream) {
                             return HotAllocator(HotAsync{&*async_, device_.streams()[stream]});
                           }});
    if (arguments_.torch_library.empty()) return Status();
    TorchLibrary torch = COMMPOOL_TRY(TorchLibrary::Open(arguments_.torch_library));
    contenders_.push_back({PyTorchsOwn(), [this, library = torch](size_t stream) {
                             return HotAllocator(HotTorch{library, device_.streams()[stream]});
                           }});
    return Status();
  }

  Status MeasureOne(const Contender& contender, bool counts) {
    const double target_ns = arguments_.round_ms * 1e6;
    const HotAllocator first = contender.on_stream(0);
    for (const uint64_t bytes : sizes_) {
      COMMPOOL_TRY(Keep(TimePairs(first, bytes, target_ns), counts, findings_.pairs[contender.key][bytes]));
    }
    for (const size_t live : arguments_.live) {
      COMMPOOL_TRY(Keep(TimeLive(first, live_bytes_, live), counts, findings_.live[contender.key][live]));
    }
    for (const size_t threads : arguments_.threads) {
      std::vector<HotAllocator> allocators;
      for (size_t thread = 0; thread < threads; ++thread) {
        allocators.push_back(contender.on_stream(1 + thread));  // this thread has the first
      }
      const auto prepare = [this] { device_.MakeCurrent(); };
      COMMPOOL_TRY(Keep(TimeThreads(allocators, sizes_.front(), 4 * target_ns, prepare), counts,
                        findings_.threads[contender.key][threads]));
    }
    if (arguments_.pinned) return Status();  // the mix would pin much of the host's memory
    for (const size_t streams : arguments_.mix) {
      std::vector<HotAllocator> by_stream;
      for (size_t stream = 0; stream < streams; ++stream) {
        by_stream.push_back(contender.on_stream(stream));
      }
      COMMPOOL_TRY(Keep(TimeMix(by_stream, target_ns), counts, findings_.mix[contender.key][streams]));
    }
    return Status();
  }

  static Status Keep(const Result<double>& measured, bool counts, std::vector<double>& samples) {
    if (measured.ok() && counts) samples.push_back(*measured);
    return measured.status();
  }

  SoloDevice& device_;
  const Arguments& arguments_;
  const std::vector<uint64_t> sizes_;
  const uint64_t live_bytes_;
  const size_t streams_;  // of one contender
  std::vector<Pool> pools_;
  std::optional<AsyncPool> async_;
  std::vector<Contender> contenders_;
  Findings findings_;
};

// Sizes in bytes; the last one is for the live blocks.
Result<std::vector<uint64_t>> ParseAll(const Arguments& arguments) {
  std::vector<uint64_t> parsed;
  std::vector<std::string> texts = arguments.sizes;
  texts.push_back(arguments.live_bytes);
  for (const std::string& text : texts) {
    Result<uint64_t> bytes = internal::ParseBytes(text);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) return Status(StatusCode::kInvalidArgument, "a size of 0 bytes cannot be allocated");
    parsed.push_back(*bytes);
  }
  return parsed;
}

// The emulator's race checker listens to every block, which would count too.
void SwitchRaceCheckerOff() {
  const char* const declared = std::getenv("COMMPOOL_EMULATOR");
  const std::string description = declared == nullptr ? "" : declared;
  if (description.find("races=") != std::string::npos) return;
  setenv("COMMPOOL_EMULATOR", (description + (description.empty() ? "" : ",") + "races=no").c_str(), 1);
}

Result<int> Run(const Arguments& arguments) {
  SwitchRaceCheckerOff();
  std::vector<uint64_t> sizes = COMMPOOL_TRY(ParseAll(arguments));
  const uint64_t live_bytes = sizes.back();
  sizes.pop_back();
  const size_t threads = *std::max_element(arguments.threads.begin(), arguments.threads.end());
  const size_t streams = std::max(1 + threads, *std::max_element(arguments.mix.begin(), arguments.mix.end()));
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(2 * streams, DriverTimes::kUnmeasured));
  if (!arguments.torch_library.empty() && device->emulated()) {
    return Status(StatusCode::kNotSupported, "PyTorch's allocator needs a GPU");
  }
  Bench bench(*device, arguments, sizes, live_bytes, streams);
  COMMPOOL_TRY(bench.AddContenders());
  const Findings findings = COMMPOOL_TRY(bench.Measure());
  const std::string driver = device->driver().description;
  const nlohmann::json results = ToJson(findings, driver);
  return Report(arguments.output, driver, results, [&] {
    Print(findings, {driver, arguments.live_bytes, arguments.sizes.front()});
  });
}

}  // namespace

void AddBenchHot(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("hot", "A cached allocation and its free, beside mimalloc");
  command.Footer(
      "Example:\n  commpool bench hot --threads 1,2,4,8 --live 1,1000,100000 --record tools/bench/results/hot.jsonl");
  command.AddOption("--sizes", arguments->sizes, "Of blocks, for one thread; the first is the threads' too")
      .SeparatedByCommas()
      .Checked(WhyNoSize)
      .ShowPreset();
  command.AddOption("--live", arguments->live, "Numbers of live blocks")
      .SeparatedByCommas()
      .Between(1, 10'000'000)
      .ShowPreset();
  command.AddOption("--live-bytes", arguments->live_bytes, "Of each live block").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--threads", arguments->threads, "Numbers of threads")
      .SeparatedByCommas()
      .Between(1, 1024)
      .ShowPreset();
  command.AddOption("--mix", arguments->mix, "Numbers of streams with 32 live blocks of 1 MiB to 1 GiB")
      .SeparatedByCommas()
      .Between(1, 32)
      .ShowPreset();
  command.AddOption("--mode", arguments->mode, "Of commpool's pool").OneOf({"fixed", "expandable"}).ShowPreset();
  command.AddFlag("--pinned", arguments->pinned, "A pool of pinned memory takes part, and nobody replaces a mix");
  command.AddOption("--route", arguments->routes, "Ways through scopes, each beside the pool by name")
      .SeparatedByCommas()
      .OneOf(RouteNames());
  command.AddOption("--rounds", arguments->rounds, "Rounds over all of it").Between(1, 1000).ShowPreset();
  command.AddOption("--round-ms", arguments->round_ms, "Milliseconds that one measurement of a round takes")
      .Between(0.01, 10'000.0)
      .ShowPreset();
  command
      .AddOption("--torch-library", arguments->torch_library,
                 "What tools/bench/build_torch_allocator.sh built: PyTorch's allocator takes part")
      .Called("FILE");
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
