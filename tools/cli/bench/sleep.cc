// commpool bench sleep: a pool that sleeps and wakes, beside the raw driver calls, the bandwidth of the copy, and
// allocators with one call for each block.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/runtime.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/handles.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/library_calls.h"
#include "tools/cli/bench/raw_sleep.h"
#include "tools/cli/bench/stopwatch.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::string bytes = "32G";
  std::string kept = "8G";
  int blocks = 10000;
  std::string block_bytes = "2M";
  int rounds = 5;
  OutputOptions output;
};

// Microseconds of both directions, one value for each round.
struct Times {
  std::vector<double> sleep;
  std::vector<double> wake;

  double Both() const { return Median(sleep) + Median(wake); }
};

// Adds one round of both directions.
Status Round(const Stopwatch& stopwatch, const std::function<Status()>& sleep, const std::function<Status()>& wake,
             bool counted, Times* times) {
  const double slept = COMMPOOL_TRY(stopwatch.Time(sleep));
  const double woken = COMMPOOL_TRY(stopwatch.Time(wake));
  if (!counted) return Status();
  times->sleep.push_back(slept);
  times->wake.push_back(woken);
  return Status();
}

struct Sizes {
  uint64_t bytes = 0;
  uint64_t kept = 0;
  size_t blocks = 0;
  uint64_t block_bytes = 0;
  int rounds = 1;
};

struct Results {
  Times raw;
  Times pool;
  Times pool_keeps;  // without the time to pin host memory
  Times pinning;     // the time to pin and to unpin
  Times copy;
  Times copy_side_by_side;  // in parts, by several streams
  Times copy_to_new;        // back, to new memory
  Times per_block;
  Times pool_of_blocks;
  std::map<std::string, std::vector<double>>
      calls_of_waking;  // of the pool that keeps its blocks: microseconds in a round
};

Result<Pool> PoolOf(size_t blocks, uint64_t bytes, std::vector<Buffer>* live) {
  Result<Pool> pool = Pool::create({.name = "bench sleep"});
  if (!pool.ok()) return pool;
  Status status = pool->reserve(blocks * bytes);
  for (size_t block = 0; block < blocks && status.ok(); ++block) {
    Result<Buffer> made = pool->allocate(bytes, nullptr);
    status = made.status();
    if (made.ok()) live->push_back(std::move(*made));
  }
  if (!status.ok()) return status;
  return pool;
}

// A pool and raw calls for the same memory take turns, and take turns at being first: the driver may still clear what
// one has released while the other asks for memory. The first round does not count.
Status MeasureDiscarding(const SoloDevice& device, const Sizes& sizes, size_t blocks, uint64_t bytes, Times* raw_times,
                         Times* pool_times) {
  const Stopwatch stopwatch(device);
  RawSleep raw = COMMPOOL_TRY(RawSleep::Make(device.driver(), blocks, bytes));
  std::vector<Buffer> live;
  Result<Pool> pool = PoolOf(blocks, bytes, &live);
  Status status = pool.status();
  for (int round = -1; round < sizes.rounds && status.ok(); ++round) {
    for (const bool of_raw : {round % 2 == 0, round % 2 != 0}) {
      if (!status.ok()) break;
      status =
          of_raw ? Round(
                       stopwatch, [&] { return raw.Sleep(); }, [&] { return raw.Wake(); }, round >= 0, raw_times)
                 : Round(
                       stopwatch, [&] { return pool->sleep(); }, [&] { return pool->wake(); }, round >= 0, pool_times);
    }
  }
  live.clear();
  return status;
}

// Copies in both directions with one call on one stream: the bandwidth of the copy. Then what may differ: several
// streams, and new memory.
Status MeasureCopies(const SoloDevice& device, const Sizes& sizes, Results* results) {
  const Stopwatch stopwatch(device);
  RawSleep memory = COMMPOOL_TRY(RawSleep::Make(device.driver(), 1, sizes.kept));
  internal::PinnedMemory host = COMMPOOL_TRY(internal::PinnedMemory::Make(device.driver(), sizes.kept));
  std::array<internal::CopyStream, 4> streams;
  for (internal::CopyStream& stream : streams) {
    stream = COMMPOOL_TRY(internal::CopyStream::Make(device.driver()));
  }
  const auto copy = [&](CUdeviceptr to, CUdeviceptr from, size_t side_by_side) {
    const uint64_t part = side_by_side == 1 ? sizes.kept : 64 * internal::kMiB;
    Status status;
    size_t turn = 0;
    for (uint64_t at = 0; at < sizes.kept && status.ok(); at += part) {
      status = streams[turn++ % side_by_side].Copy(to + at, from + at, std::min(part, sizes.kept - at));
    }
    for (internal::CopyStream& stream : streams) {
      if (status.ok()) status = stream.Await();
    }
    return status;
  };
  const auto round = [&](size_t side_by_side, bool counted, Times* times) {
    return Round(
        stopwatch, [&] { return copy(host.address(), memory.first(), side_by_side); },
        [&] { return copy(memory.first(), host.address(), side_by_side); }, counted, times);
  };
  Status status;
  for (int number = -1; number < sizes.rounds && status.ok(); ++number) {
    status = round(1, number >= 0, &results->copy);
    if (status.ok()) status = round(streams.size(), number >= 0, &results->copy_side_by_side);
    if (status.ok()) status = memory.Sleep();
    if (status.ok()) status = memory.Wake();
    if (status.ok()) {
      status = Round(
          stopwatch, [] { return Status(); }, [&] { return copy(memory.first(), host.address(), 1); }, number >= 0,
          &results->copy_to_new);
    }
  }
  return status;
}

Status MeasureKeeping(const SoloDevice& device, const Sizes& sizes, Results* results) {
  const Stopwatch stopwatch(device);
  std::vector<Buffer> live;
  Result<Pool> pool = PoolOf(1, sizes.kept, &live);
  Status status = pool.status();
  for (int round = -1; round < sizes.rounds && status.ok(); ++round) {
    std::map<std::string, double> before = MicrosecondsByCall();
    std::map<std::string, double> asleep;
    Times times;
    const auto sleep = [&] {
      Status slept = pool->sleep(Keep::kHost);
      asleep = MicrosecondsByCall();
      return slept;
    };
    status = Round(
        stopwatch, sleep, [&] { return pool->wake(); }, true, &times);
    if (!status.ok() || round < 0) continue;
    std::map<std::string, double> awake = MicrosecondsByCall();
    for (const auto& [call, microseconds] : awake) {
      if (microseconds > asleep[call]) results->calls_of_waking[call].push_back(microseconds - asleep[call]);
    }
    const double pinned = awake["cuMemAllocHost"] - before["cuMemAllocHost"];
    const double unpinned = awake["cuMemFreeHost"] - before["cuMemFreeHost"];
    results->pinning.sleep.push_back(pinned);
    results->pinning.wake.push_back(unpinned);
    results->pool_keeps.sleep.push_back(times.sleep.front() - pinned);
    results->pool_keeps.wake.push_back(times.wake.front() - unpinned);
  }
  live.clear();
  return status;
}

Status Measure(const SoloDevice& device, const Sizes& sizes, Results* results) {
  Progress progress("bench sleep: part", 4);
  progress.Show(0, "one segment");
  COMMPOOL_TRY(MeasureDiscarding(device, sizes, 1, sizes.bytes, &results->raw, &results->pool));
  progress.Show(1, "copies");
  COMMPOOL_TRY(MeasureCopies(device, sizes, results));
  progress.Show(2, "kept on the host");
  COMMPOOL_TRY(MeasureKeeping(device, sizes, results));
  progress.Show(3, "many blocks");
  return MeasureDiscarding(device, sizes, sizes.blocks, sizes.block_bytes, &results->per_block,
                           &results->pool_of_blocks);
}

// 0 for a way without a measurement.
double GigabytesPerSecond(uint64_t bytes, double microseconds) {
  return microseconds == 0 ? 0 : static_cast<double>(bytes) / microseconds / 1e3;
}

nlohmann::json ToJson(const SoloDevice& device, const Sizes& sizes, const Results& results) {
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const char* what, uint64_t bytes, const Times& times) {
    rows.push_back({{"what", what},
                    {"bytes", bytes},
                    {"sleep_us", Median(times.sleep)},
                    {"wake_us", Median(times.wake)},
                    {"sleep_gb_s", GigabytesPerSecond(bytes, Median(times.sleep))},
                    {"wake_gb_s", GigabytesPerSecond(bytes, Median(times.wake))}});
  };
  const uint64_t in_blocks = sizes.blocks * sizes.block_bytes;
  nlohmann::json calls = nlohmann::json::object();
  for (const auto& [call, microseconds] : results.calls_of_waking) calls[call] = Median(microseconds);
  add("raw driver calls", sizes.bytes, results.raw);
  add("pool", sizes.bytes, results.pool);
  add("copy, pinned", sizes.kept, results.copy);
  add("copy, 4 streams", sizes.kept, results.copy_side_by_side);
  add("copy, new memory", sizes.kept, results.copy_to_new);
  add("pool, kept", sizes.kept, results.pool_keeps);
  add("pinning", sizes.kept, results.pinning);
  add("a call a block", in_blocks, results.per_block);
  add("pool of blocks", in_blocks, results.pool_of_blocks);
  return {{"driver", device.driver().description},
          {"rounds", sizes.rounds},
          {"blocks", sizes.blocks},
          {"rows", rows},
          {"kept_wake_us_in_calls", calls},
          {"ratio_to_raw_calls", results.pool.Both() / results.raw.Both()},
          {"kept_share_of_copy_down", Median(results.copy.sleep) / Median(results.pool_keeps.sleep)},
          {"kept_share_of_copy_up", Median(results.copy.wake) / Median(results.pool_keeps.wake)},
          {"times_faster_than_a_call_a_block", results.per_block.Both() / results.pool_of_blocks.Both()}};
}

void Print(const SoloDevice& device, const nlohmann::json& json) {
  std::printf("# %s\n# %s milliseconds, median of %d; %d blocks\n%-18s %10s %12s %12s %12s %12s\n",
              device.driver().description.c_str(), device.emulated() ? "modelled" : "host", json["rounds"].get<int>(),
              json["blocks"].get<int>(), "", "bytes", "sleep", "wake", "GB/s down", "GB/s up");
  for (const nlohmann::json& row : json["rows"]) {
    std::printf("%-18s %10s %12.3f %12.3f %12.1f %12.1f\n", row["what"].get<std::string>().c_str(),
                internal::FormatBytes(row["bytes"].get<uint64_t>()).c_str(), row["sleep_us"].get<double>() / 1e3,
                row["wake_us"].get<double>() / 1e3, row["sleep_gb_s"].get<double>(), row["wake_gb_s"].get<double>());
  }
  std::printf("# waking what was kept, milliseconds in");
  for (const auto& [call, microseconds] : json["kept_wake_us_in_calls"].items()) {
    if (microseconds.get<double>() >= 10) std::printf(" %s %.3f", call.c_str(), microseconds.get<double>() / 1e3);
  }
  std::printf("\n");
  std::printf(
      "# %.3f times the raw calls; kept at %.2f (down) and %.2f (up) of the copy's bandwidth, without pinning; "
      "%.1f times faster than a call a block\n",
      json["ratio_to_raw_calls"].get<double>(), json["kept_share_of_copy_down"].get<double>(),
      json["kept_share_of_copy_up"].get<double>(), json["times_faster_than_a_call_a_block"].get<double>());
}

// Rounds up to whole pages.
Result<uint64_t> PagesOf(const std::string& text) {
  constexpr uint64_t kPage = 2 * internal::kMiB;
  Result<uint64_t> bytes = internal::ParseBytes(text);
  if (bytes.ok()) *bytes = internal::RoundUp(std::max(*bytes, kPage), kPage);
  return bytes;
}

Result<int> Run(const Arguments& arguments) {
  Sizes sizes{.blocks = static_cast<size_t>(arguments.blocks), .rounds = arguments.rounds};
  for (const auto& [text, bytes] : {std::pair(&arguments.bytes, &sizes.bytes), std::pair(&arguments.kept, &sizes.kept),
                                    std::pair(&arguments.block_bytes, &sizes.block_bytes)}) {
    *bytes = COMMPOOL_TRY(PagesOf(*text));
  }
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(1, DriverTimes::kMeasured));
  Results results;
  COMMPOOL_TRY(Measure(*device, sizes, &results));
  const nlohmann::json json = ToJson(*device, sizes, results);
  return Report(arguments.output, device->driver().description, json, [&] { Print(*device, json); });
}

}  // namespace

void AddBenchSleep(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("sleep", "A pool that sleeps and wakes, beside raw calls, copies and a call a block");
  command.Footer(
      "Examples:\n"
      "  commpool bench sleep\n"
      "  commpool bench sleep --bytes 1G --kept 64M --blocks 200    (on the emulator)");
  command.AddOption("--bytes", arguments->bytes, "Of the pool that discards").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--kept", arguments->kept, "Of the pool that keeps").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--blocks", arguments->blocks, "Of the pool beside a call a block").Between(1, 60'000).ShowPreset();
  command.AddOption("--block-bytes", arguments->block_bytes, "Of each of them").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--rounds", arguments->rounds, "That are counted").Between(1, 1000).ShowPreset();
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
