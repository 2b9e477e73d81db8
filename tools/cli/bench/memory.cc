// commpool bench memory: how fast a pool's memory is, beside memory of the same kind by the raw call. A pool adds
// nothing to a copy or a load, so less than the raw call's speed means other memory: other pages, another node, no
// access of peers.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commpool/configuration.h"
#include "commpool/pool.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "tools/cli/backing_names.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/memory_uses.h"
#include "tools/cli/bench/raw_memory.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

constexpr double kLeastRatio = 0.98;

struct Arguments {
  std::string bytes = "256M";
  int rounds = 21;
  OutputOptions output;
};

constexpr MemoryKind kKinds[] = {{Backing::kVmm, Location::kDevice},
                                 {Backing::kCuda, Location::kDevice},
                                 {Backing::kNccl, Location::kDevice},
                                 {Backing::kPinned, Location::kDevice},
                                 {Backing::kVmm, Location::kHostNuma}};

std::string TitleOf(MemoryKind kind) {
  return NameOf(BackingNames(), kind.backing) + (kind.location == Location::kHostNuma ? " host-numa" : "");
}

// A pool of one block on a device.
struct PoolMemory {
  Pool pool;
  Buffer block;

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(block.data()); }

  static Result<PoolMemory> Make(MemoryKind kind, int device, uint64_t bytes, const std::vector<int>& peers) {
    Pool pool = COMMPOOL_TRY(Pool::create({.name = "bench memory",
                                           .device = device,
                                           .backing = kind.backing,
                                           .location = kind.location,
                                           .peers = peers}));
    COMMPOOL_TRY(pool.reserve(bytes));
    Buffer block = COMMPOOL_TRY(pool.allocate(bytes, nullptr));
    return PoolMemory{std::move(pool), std::move(block)};
  }
};

// Where a pool's memory lies, by which handles, and who knows its node: as the library says.
Result<std::string> DescriptionOf(const Pool& pool) {
  const std::vector<Setting> settings = COMMPOOL_TRY(configuration(pool));
  const auto memory =
      std::find_if(settings.begin(), settings.end(), [](const Setting& one) { return one.key == "memory"; });
  return memory == settings.end() ? std::string() : memory->value;
}

// Both contenders, on device 0 and where there is one on a peer.
struct Contenders {
  PoolMemory pool;
  RawMemory raw;
  std::string raw_call;
  std::optional<PoolMemory> pool_on_peer = {};
  std::optional<RawMemory> raw_on_peer = {};

  Subject OfPool() const { return {pool.address(), pool_on_peer ? pool_on_peer->address() : 0}; }
  Subject OfRaw() const { return {raw.address(), raw_on_peer ? raw_on_peer->address() : 0}; }
};

// The driver may refuse handles of a host node's memory; then a pool has memory of another making, and pinned memory is
// the limit line.
Result<Contenders> MakeContenders(const internal::Driver& driver, MemoryKind kind, uint64_t bytes,
                                  const std::optional<int>& peer) {
  const std::vector<int> peers = peer ? std::vector<int>{*peer} : std::vector<int>();
  // Pools first: theirs is the process-wide access of peers that memory of cuMemAlloc needs as well.
  PoolMemory pool = COMMPOOL_TRY(PoolMemory::Make(kind, 0, bytes, peers));
  std::optional<PoolMemory> pool_on_peer;
  if (peer) pool_on_peer = COMMPOOL_TRY(PoolMemory::Make(kind, *peer, bytes, {0}));
  MemoryKind by_hand = kind;
  Result<RawMemory> raw = RawMemory::Make(driver, by_hand, 0, bytes, peers);
  if (!raw.ok() && kind.on_host()) {
    by_hand = {.backing = Backing::kPinned};
    raw = RawMemory::Make(driver, by_hand, 0, bytes);
  }
  if (!raw.ok()) return raw.status();
  Contenders made{std::move(pool), std::move(*raw), RawMemory::CallFor(by_hand), std::move(pool_on_peer)};
  if (peer) made.raw_on_peer = COMMPOOL_TRY(RawMemory::Make(driver, by_hand, *peer, bytes, {0}));
  return made;
}

struct Row {
  MemoryKind kind;
  std::string pool_memory;
  std::string raw_call;
  UseRow use;
  uint64_t bytes;
  std::vector<double> pool_us = {};
  std::vector<double> raw_us = {};
  std::vector<double> ratios = {};  // the pool's speed / the raw call's, one for each round
};

// The pool, the raw call twice, the pool: so a drift of the machine favours none. The first round does not count.
Status Measure(const MemoryUses& uses, const Contenders& contenders, int rounds, Row& row) {
  for (int round = -1; round < rounds; ++round) {
    double pool = 0;
    double raw = 0;
    for (const bool of_pool : {true, false, false, true}) {
      const Subject subject = of_pool ? contenders.OfPool() : contenders.OfRaw();
      (of_pool ? pool : raw) += COMMPOOL_TRY(uses.Time(row.use, subject));
    }
    if (round < 0) continue;
    row.pool_us.push_back(pool / 2);
    row.raw_us.push_back(raw / 2);
    row.ratios.push_back(raw / pool);
  }
  return Status();
}

std::vector<UseRow> UsesOf(MemoryKind kind, const std::optional<int>& peer) {
  std::vector<UseRow> uses;
  const auto add = [&](std::span<const UseRow> rows) { uses.insert(uses.end(), rows.begin(), rows.end()); };
  add(UsesOnDevice());
  if (peer) add(UsesBetweenDevices());
  if (kind.on_host()) add(UsesOnHost());
  return uses;
}

Status MeasureKind(const SoloDevice& device, MemoryKind kind, uint64_t bytes, int rounds, std::vector<Row>& rows) {
  std::optional<int> peer;
  if (!kind.on_host()) {
    // In both directions: the copy's stream is device 0's, and pools grant both.
    for (const int other : COMMPOOL_TRY(internal::PeersThatReach(device.driver(), 0))) {
      if (!peer && internal::CheckReachable(device.driver(), 0, other).ok()) peer = other;
    }
  }
  const MemoryUses uses = COMMPOOL_TRY(MemoryUses::Make(device, bytes));
  const Contenders contenders = COMMPOOL_TRY(MakeContenders(device.driver(), kind, bytes, peer));
  const std::string pool_memory = COMMPOOL_TRY(DescriptionOf(contenders.pool.pool));
  for (const UseRow& use : UsesOf(kind, peer)) {
    rows.push_back({kind, pool_memory, contenders.raw_call, use, uses.BytesOf(use)});
    COMMPOOL_TRY(Measure(uses, contenders, rounds, rows.back()));
  }
  return Status();
}

nlohmann::json ToJson(const Row& row) {
  const Spread ratio = SpreadOf(row.ratios);
  const double pool_us = Median(row.pool_us);
  const double raw_us = Median(row.raw_us);
  const auto bytes = static_cast<double>(row.bytes);
  return {{"memory", TitleOf(row.kind)},
          {"pool_memory", row.pool_memory},
          {"raw_call", row.raw_call},
          {"use", row.use.name},
          {"bytes", row.bytes},
          {"pool_us", pool_us},
          {"raw_us", raw_us},
          {"pool_gb_s", bytes / pool_us / 1e3},
          {"raw_gb_s", bytes / raw_us / 1e3},
          {"ratio", ratio.median},
          {"interval", {ratio.low, ratio.high}}};
}

void Print(const nlohmann::json& json) {
  std::printf("# %s\n# median of %d rounds; ratio: the pool's speed / the raw call's, with its interval at 95 %%\n",
              json["driver"].get<std::string>().c_str(), json["rounds"].get<int>());
  const bool emulated = json["emulated"].get<bool>();
  if (emulated) std::printf("# on the emulator: nothing here tells how fast memory is\n");
  std::printf("%-14s %-14s %-10s %9s %11s %11s %9s %9s %7s %15s\n", "memory", "raw call", "use", "bytes", "pool us",
              "raw us", "pool GB/s", "raw GB/s", "ratio", "interval");
  std::string last;
  for (const nlohmann::json& row : json["rows"]) {
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    if (text("memory") != last) std::printf("# %s: %s\n", text("memory").c_str(), text("pool_memory").c_str());
    last = text("memory");
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    const double high = row["interval"][1].get<double>();
    std::printf("%-14s %-14s %-10s %9s %11.3f %11.3f %9.2f %9.2f %7.3f %7.3f %7.3f%s\n", text("memory").c_str(),
                text("raw_call").c_str(), text("use").c_str(),
                internal::FormatBytes(row["bytes"].get<uint64_t>()).c_str(), number("pool_us"), number("raw_us"),
                number("pool_gb_s"), number("raw_gb_s"), number("ratio"), row["interval"][0].get<double>(), high,
                high < kLeastRatio && !emulated ? "  below 0.98" : "");
  }
  for (const nlohmann::json& refused : json["refused"]) {
    std::printf("%-14s not here: %s\n", refused["memory"].get<std::string>().c_str(),
                refused["reason"].get<std::string>().c_str());
  }
}

Result<int> Run(const Arguments& arguments) {
  constexpr uint64_t kWhole = 2 * internal::kMiB;
  const uint64_t asked = COMMPOOL_TRY(internal::ParseBytes(arguments.bytes));
  const uint64_t bytes = internal::RoundUp(std::max(asked, kWhole), kWhole);
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(1, DriverTimes::kUnmeasured));
  nlohmann::json json = {{"driver", device->driver().description},
                         {"emulated", device->emulated()},
                         {"rounds", arguments.rounds},
                         {"rows", nlohmann::json::array()},
                         {"refused", nlohmann::json::array()}};
  {
    Progress progress("bench memory:", std::size(kKinds));
    for (size_t index = 0; index < std::size(kKinds); ++index) {
      progress.Show(index, TitleOf(kKinds[index]));
      std::vector<Row> rows;
      const Status status = MeasureKind(*device, kKinds[index], bytes, arguments.rounds, rows);
      if (status.code() == StatusCode::kNotSupported) {
        json["refused"].push_back({{"memory", TitleOf(kKinds[index])}, {"reason", status.message()}});
        continue;
      }
      COMMPOOL_TRY(Status(status));
      for (const Row& row : rows) json["rows"].push_back(ToJson(row));
    }
  }
  return Report(arguments.output, device->driver().description, json, [&] { Print(json); });
}

}  // namespace

void AddBenchMemory(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("memory", "How fast pools' memory is, beside memory by the raw call");
  command.Footer(
      "Examples:\n"
      "  commpool bench memory\n"
      "  commpool bench memory --bytes 4M --rounds 1    (on the emulator)");
  command.AddOption("--bytes", arguments->bytes, "Of each memory, and of a large copy").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--rounds", arguments->rounds, "That are counted").Between(1, 1000).ShowPreset();
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
