// commpool bench growth: what a pool adds to the driver calls of its growth, alone and with peers.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "commpool/pool.h"
#include "src/emulator/extension.h"
#include "src/library/backing/kept_addresses.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/library_calls.h"
#include "tools/cli/bench/raw_growth.h"
#include "tools/cli/median.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::string bytes = "512M";
  std::string page = "20M";
  int rounds = 21;
  double seconds = 20;
  bool calls = false;
  OutputOptions output;
};

using Clock = std::chrono::steady_clock;
using Calls = std::optional<uint64_t>;

// The emulator's count of calls; nothing on a GPU, where nobody counts.
class CallCounter {
 public:
  explicit CallCounter(const internal::Driver& driver)
      : count_(reinterpret_cast<decltype(&commpoolEmulatorCallCount)>(driver.extension("commpoolEmulatorCallCount"))) {}

  Calls Made() const {
    if (count_ == nullptr) return std::nullopt;
    uint64_t calls = 0;
    for (const char* const name : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
      calls += count_(name);
    }
    return calls;
  }

 private:
  uint64_t (*count_)(const char*);
};

// Times growths, each given back at once.
struct Sample {
  double microseconds = 0;
  Calls calls;
};

template <typename Grow>
Result<Sample> Time(const CallCounter& counter, Grow&& grow) {
  const Calls before = counter.Made();
  const Clock::time_point start = Clock::now();
  Status status = grow();
  const double microseconds = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  if (!status.ok()) return status;
  Sample sample{microseconds, counter.Made()};
  if (sample.calls) *sample.calls -= *before;
  return sample;
}

// What a row makes each time.
enum class Of {
  kSegment,  // at new addresses
  kAgain,    // of the same size as the segment before: the pool has kept its addresses
  kPages,
};

struct Row {
  Of of = Of::kSegment;
  GrowthShape shape;
  std::vector<double> raw_us = {};
  std::vector<double> raw_kept_us = {};  // by hand, with addresses kept as well
  std::vector<double> raw_each_us = {};  // with one access call for each page
  std::vector<double> pool_us = {};
  std::map<std::string, std::vector<double>> pool_us_by_call =
      {};                                    // time of each driver call of the pool, in one round
  std::vector<double> pool_outside_us = {};  // the pool's time outside of them
  std::map<std::string, std::vector<double>> raw_us_by_call = {};
  std::vector<double> ratios = {};       // one for each round
  std::vector<double> kept_ratios = {};  // to the calls by hand with kept addresses
  uint64_t raw_same_addresses = 0;       // rounds in which the driver gave the raw calls the same addresses again
  Calls raw_calls = {};
  Calls pool_calls = {};

  const char* name() const { return of == Of::kSegment ? "segment" : of == Of::kAgain ? "again" : "pages"; }
  uint64_t pages() const { return shape.page_bytes == 0 ? 1 : (shape.bytes + shape.page_bytes - 1) / shape.page_bytes; }
};

class Rounds {
 public:
  Rounds(const internal::Driver& driver, Row& row, bool times_calls)
      : driver_(driver), counter_(driver), row_(row), times_calls_(times_calls) {}

  // At least `rounds`, then more until the ratio is known or the time is over. The first round does not count: in it
  // the pool reserves its addresses, and the driver takes memory that it keeps.
  Status Run(int rounds, double seconds) {
    const GrowthShape& shape = row_.shape;
    PoolOptions options = {.name = "bench growth", .backing = Backing::kVmm, .peers = shape.peers};
    if (shape.page_bytes != 0) {
      options.mode = Mode::kExpandable;
      options.segment_bytes = shape.page_bytes;
    }
    Result<Pool> pool = Pool::create(options);
    if (!pool.ok()) return pool.status();
    // Like a program, whose pool has other memory too. A pool without any keeps no addresses.
    Result<Buffer> other = shape.page_bytes == 0 ? pool->allocate(2 * internal::kMiB, nullptr) : Buffer();
    if (!other.ok()) return other.status();
    RawGrowth raw = COMMPOOL_TRY(RawGrowth::Prepare(driver_, shape));
    if (times_calls_) raw.TimeCalls();
    const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
    for (int round = -1; round < rounds || (!IsKnown() && Clock::now() < end); ++round) {
      COMMPOOL_TRY(OneRound(round, raw, *pool));
    }
    other = Buffer();
    return pool->close();
  }

 private:
  using Seconds = std::chrono::duration<double>;
  // How wide the ratio's interval may be.
  static constexpr double kKnownWithin = 0.02;

  // At once on the emulator, whose times mean nothing.
  bool IsKnown() const {
    if (row_.raw_calls) return true;
    const Spread spread = SpreadOf(row_.ratios);
    return row_.ratios.size() >= 6 && spread.high - spread.low <= kKnownWithin;
  }

  // The sizes return so late that the pool has given their addresses away.
  uint64_t BytesOf(int round) const {
    constexpr int kSizes = 2 * static_cast<int>(internal::KeptAddresses::kMostRanges);
    const auto step = static_cast<uint64_t>((round + kSizes) % kSizes);
    return row_.shape.bytes + (row_.of == Of::kSegment ? step * 2 * internal::kMiB : 0);
  }

  Status OneRound(int round, RawGrowth& raw, Pool& pool) {
    const uint64_t bytes = BytesOf(round);
    const auto grow_raw = [&](const RawGrowth::Way& way, std::vector<double>& times) {
      return Measure([&] { return raw.Make(way, bytes); }, [&] { return raw.Undo(way); }, round, times);
    };
    const auto grow_plainly = [&] {
      Result<Sample> sample = grow_raw({}, row_.raw_us);
      if (sample.ok() && round >= 0) NoteRaw(raw);
      if (sample.ok()) row_.raw_calls = sample->calls;
      return sample;
    };
    const auto grow_pool = [&] { return GrowPool(pool, bytes, round); };
    const auto grow_kept = [&] { return grow_raw({.addresses = RawGrowth::Addresses::kKept}, row_.raw_kept_us); };
    std::vector<std::function<Result<Sample>()>> turns = {grow_pool, grow_plainly};
    if (row_.of == Of::kAgain) turns.push_back(grow_kept);
    // Each way follows each other way equally often, because what one leaves to the driver slows the next.
    constexpr std::array<std::array<size_t, 3>, 6> kOrders = {
        {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}};
    for (const size_t turn : kOrders[static_cast<size_t>(round + 6) % 6]) {
      if (turn >= turns.size()) continue;
      COMMPOOL_TRY(turns[turn]().status());
    }
    if (round >= 0) row_.ratios.push_back(row_.pool_us.back() / row_.raw_us.back());
    if (round >= 0 && row_.of == Of::kAgain) row_.kept_ratios.push_back(row_.pool_us.back() / row_.raw_kept_us.back());
    if (row_.of != Of::kPages) return Status();
    return grow_raw({.access = RawGrowth::Access::kForEachPage}, row_.raw_each_us).status();
  }

  void NoteRaw(const RawGrowth& raw) {
    if (row_.of != Of::kPages && raw.got_last_addresses()) ++row_.raw_same_addresses;
    for (const auto& [call, microseconds] : raw.microseconds_by_call())
      row_.raw_us_by_call[call].push_back(microseconds);
  }

  Result<Sample> GrowPool(Pool& pool, uint64_t bytes, int round) {
    const std::map<std::string, double> before = MicrosecondsByCall();
    std::map<std::string, double> after;
    const auto undo = [&] {
      after = MicrosecondsByCall();
      return pool.trim(0).status();
    };
    Result<Sample> sample = Measure([&] { return pool.reserve(bytes); }, undo, round, row_.pool_us);
    if (!sample.ok()) return sample;
    if (round >= 0 && !after.empty()) NoteCalls(before, after, sample->microseconds);
    row_.pool_calls = sample->calls;
    return sample;
  }

  void NoteCalls(const std::map<std::string, double>& before, const std::map<std::string, double>& after,
                 double microseconds) {
    for (const auto& [call, until_now] : after) {
      const auto earlier = before.find(call);
      const double of_call = until_now - (earlier == before.end() ? 0 : earlier->second);
      if (of_call <= 0) continue;
      row_.pool_us_by_call[call].push_back(of_call);
      microseconds -= of_call;
    }
    row_.pool_outside_us.push_back(microseconds);
  }

  template <typename Grow, typename Undo>
  Result<Sample> Measure(Grow&& grow, Undo&& undo, int round, std::vector<double>& times) {
    // Waits first: work that the way before left to the driver must not count.
    COMMPOOL_TRY(internal::CheckCuda(driver_, driver_.cuda.cuCtxSynchronize(), {.call = "cuCtxSynchronize"}));
    Result<Sample> sample = Time(counter_, grow);
    if (!sample.ok()) return sample;
    COMMPOOL_TRY(undo());
    if (round >= 0) times.push_back(sample->microseconds);
    return sample;
  }

  const internal::Driver& driver_;
  const CallCounter counter_;
  Row& row_;
  const bool times_calls_;
};

// For one, two and four devices, as far as there are peers that reach device 0's memory.
Result<std::vector<Row>> RowsFor(const internal::Driver& driver, uint64_t bytes, uint64_t page) {
  const std::vector<int> peers = COMMPOOL_TRY(internal::PeersThatReach(driver, 0));
  std::vector<Row> rows;
  for (const size_t count : {0, 1, 3}) {
    if (count > peers.size()) break;
    const std::vector<int> some(peers.begin(), peers.begin() + static_cast<long>(count));
    for (const Of of : {Of::kSegment, Of::kAgain}) rows.push_back({.of = of, .shape = {bytes, 0, some}});
    rows.push_back({.of = Of::kPages, .shape = {bytes, page, some}});
  }
  return rows;
}

nlohmann::json ToJson(const Row& row) {
  const Spread ratio = SpreadOf(row.ratios);
  nlohmann::json json = {{"of", row.name()},
                         {"devices", row.shape.peers.size() + 1},
                         {"bytes", row.shape.bytes},
                         {"pages", row.pages()},
                         {"raw_us", Median(row.raw_us)},
                         {"pool_us", Median(row.pool_us)},
                         {"rounds", row.ratios.size()},
                         {"growth_ratio", ratio.median},
                         {"interval", {ratio.low, ratio.high}}};
  if (!row.kept_ratios.empty()) {
    const Spread kept = SpreadOf(row.kept_ratios);
    json["raw_kept_us"] = Median(row.raw_kept_us);
    json["kept_ratio"] = kept.median;
    json["kept_interval"] = {kept.low, kept.high};
  }
  if (row.of != Of::kPages) json["raw_same_addresses"] = row.raw_same_addresses;
  if (!row.raw_each_us.empty()) json["raw_access_for_each_page_us"] = Median(row.raw_each_us);
  if (row.raw_calls) json["raw_calls"] = *row.raw_calls;
  if (row.pool_calls) json["pool_calls"] = *row.pool_calls;
  for (const auto& [call, times] : row.raw_us_by_call) json["raw_us_by_call"][call] = Median(times);
  for (const auto& [call, times] : row.pool_us_by_call) json["pool_us_by_call"][call] = Median(times);
  if (!row.pool_outside_us.empty()) json["pool_outside_us"] = Median(row.pool_outside_us);
  return json;
}

void PrintCalls(const std::map<std::string, std::vector<double>>& times_by_call, const char* whose) {
  for (const auto& [call, times] : times_by_call)
    std::printf("  %-5s %-24s %8.1f us\n", whose, call.c_str(), Median(times));
}

void Print(const internal::Driver& driver, const std::vector<Row>& rows) {
  std::printf(
      "# %s\n# host time of alternating rounds, median; ratio: of a round, with its interval at 95 %%\n"
      "# again: a segment of the size that was just given back; kept: the ratio to raw calls that keep the "
      "addresses too\n"
      "# access each: the raw calls with cuMemSetAccess for each page\n",
      driver.description.c_str());
  std::printf("%-8s %8s %10s %6s %7s %11s %12s %11s %7s %15s %23s\n", "of", "devices", "bytes", "pages", "rounds",
              "raw us", "access each", "pool us", "ratio", "interval", "kept");
  for (const Row& row : rows) {
    const Spread ratio = SpreadOf(row.ratios);
    const std::string each = row.raw_each_us.empty() ? "-" : std::to_string(Median(row.raw_each_us));
    std::printf("%-8s %8zu %10s %6llu %7zu %11.1f %12s %11.1f %7.3f %7.3f %7.3f", row.name(),
                row.shape.peers.size() + 1, internal::FormatBytes(row.shape.bytes).c_str(),
                static_cast<unsigned long long>(row.pages()), row.ratios.size(), Median(row.raw_us),
                each.substr(0, each.find('.') + 2).c_str(), Median(row.pool_us), ratio.median, ratio.low, ratio.high);
    if (!row.kept_ratios.empty()) {
      const Spread kept = SpreadOf(row.kept_ratios);
      std::printf(" %7.3f %7.3f %7.3f", kept.median, kept.low, kept.high);
    }
    std::printf("\n");
    PrintCalls(row.raw_us_by_call, "raw");
    PrintCalls(row.pool_us_by_call, "pool");
    if (!row.pool_outside_us.empty()) PrintCalls({{"outside", row.pool_outside_us}}, "pool");
  }
}

Result<uint64_t> WholePages(const std::string& text, const char* option) {
  Result<uint64_t> bytes = internal::ParseBytes(text);
  if (!bytes.ok()) return bytes;
  if (*bytes >= 2 * internal::kMiB && *bytes <= 64 * internal::kGiB)
    return internal::RoundUp(*bytes, 2 * internal::kMiB);
  return Status(StatusCode::kInvalidArgument, std::string(option) + " " + text + ": from 2M to 64G");
}

Result<int> Run(const Arguments& arguments) {
  const uint64_t bytes = COMMPOOL_TRY(WholePages(arguments.bytes, "--bytes"));
  const uint64_t page = COMMPOOL_TRY(WholePages(arguments.page, "--page"));
  const DriverTimes times = arguments.calls ? DriverTimes::kMeasured : DriverTimes::kUnmeasured;
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(0, times));
  const internal::Driver& driver = device->driver();
  std::vector<Row> rows = COMMPOOL_TRY(RowsFor(driver, bytes, page));
  nlohmann::json results = {{"driver", driver.description}, {"rows", nlohmann::json::array()}};
  std::optional<Progress> progress(std::in_place, "bench growth: row", rows.size());
  for (Row& row : rows) {
    progress->Show(results["rows"].size(), row.name());
    COMMPOOL_TRY(Rounds(driver, row, arguments.calls).Run(arguments.rounds, arguments.seconds));
    results["rows"].push_back(ToJson(row));
  }
  progress.reset();
  return Report(arguments.output, driver.description, results, [&] { Print(driver, rows); });
}

}  // namespace

void AddBenchGrowth(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      bench.Add("growth", "A pool's growth beside the driver calls that it makes, for 1, 2 and 4 devices");
  command.Footer("Example:\n  commpool bench growth --record tools/bench/results/growth.jsonl");
  command.AddOption("--bytes", arguments->bytes, "That a growth makes").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--page", arguments->page, "Of an expandable pool").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--rounds", arguments->rounds, "Of pool and raw calls in turn, at least")
      .Between(1, 10'000)
      .ShowPreset();
  command.AddOption("--seconds", arguments->seconds, "More rounds for so long, until the ratio is known within 2 %")
      .Between(0.0, 3600.0)
      .ShowPreset();
  command.AddFlag("--calls", arguments->calls,
                  "Time each driver call, and what the pool does outside of them; costs 0.1 us a call");
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
