// commpool bench make: how long each backing takes to make a pool's memory, beside ncclMemAlloc in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "commpool/pool.h"
#include "src/base/bytes.h"
#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/ranks.h"
#include "tools/cli/sizes.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::string bytes = "512M";
  int rounds = 7;
  OutputOptions output;
};

constexpr char kRawCalls[] = "raw vmm calls";
constexpr char kGrowth[] = "vmm growth";  // of an existing pool: the same calls, and what the pool adds

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Result<double> TimePool(Backing backing, uint64_t bytes) {
  const Clock::time_point start = Clock::now();
  Pool pool = COMMPOOL_TRY(Pool::create({.backing = backing, .name = "bench make"}));
  COMMPOOL_TRY(pool.reserve(bytes));
  const double microseconds = MicrosecondsSince(start);
  COMMPOOL_TRY(pool.close());
  return microseconds;
}

// Grows an existing pool.
Result<double> TimeGrowth(uint64_t bytes) {
  Pool pool = COMMPOOL_TRY(Pool::create({.backing = Backing::kVmm, .name = "bench make"}));
  const Clock::time_point start = Clock::now();
  Status status = pool.reserve(bytes);
  const double microseconds = MicrosecondsSince(start);
  if (status.ok()) status = pool.close();
  if (!status.ok()) return status;
  return microseconds;
}

Result<double> TimeNcclMemAlloc(const internal::Driver& driver, uint64_t bytes) {
  void* pointer = nullptr;
  const Clock::time_point start = Clock::now();
  COMMPOOL_TRY(
      internal::CheckNccl(driver, driver.nccl.ncclMemAlloc(&pointer, bytes), {.call = "ncclMemAlloc", .bytes = bytes}));
  const double microseconds = MicrosecondsSince(start);
  COMMPOOL_TRY(internal::CheckNccl(driver, driver.nccl.ncclMemFree(pointer), {.call = "ncclMemFree", .bytes = bytes}));
  return microseconds;
}

// The calls that a vmm segment needs, by hand: a pool cannot be faster.
Result<double> TimeRawCalls(const internal::Driver& driver, int device, uint64_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const Clock::time_point start = Clock::now();
  internal::AddressRange range = COMMPOOL_TRY(internal::AddressRange::Reserve(driver, bytes, 0));
  internal::PhysicalMemory memory = COMMPOOL_TRY(internal::PhysicalMemory::Create(driver, bytes, properties));
  internal::Mapping mapping = COMMPOOL_TRY(internal::Mapping::Map(driver, range.address(), memory));
  COMMPOOL_TRY(mapping.SetAccess(properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  return MicrosecondsSince(start);
}

using Times = std::map<std::string, std::vector<double>>;

// One round over all of them after the other, so that a drift of the machine favours none.
Result<Times> Measure(const internal::Driver& driver, int device, uint64_t bytes, int rounds, Shown shown) {
  Progress progress("bench make: round", static_cast<uint64_t>(rounds) + 1, shown);
  Times times;
  for (int round = -1; round < rounds; ++round) {  // round -1 does not count
    progress.Show(static_cast<uint64_t>(round + 1));
    const std::pair<const char*, Result<double>> measured[] = {{"ncclMemAlloc", TimeNcclMemAlloc(driver, bytes)},
                                                               {kRawCalls, TimeRawCalls(driver, device, bytes)},
                                                               {kGrowth, TimeGrowth(bytes)},
                                                               {"vmm pool", TimePool(Backing::kVmm, bytes)},
                                                               {"cuda pool", TimePool(Backing::kCuda, bytes)},
                                                               {"nccl pool", TimePool(Backing::kNccl, bytes)}};
    for (const auto& [name, time] : measured) {
      if (!time.ok()) return time.status();
      if (round >= 0) times[name].push_back(*time);
    }
  }
  return times;
}

nlohmann::json ToJson(const internal::Driver& driver, uint64_t bytes, int rounds, const Times& times) {
  nlohmann::json rows = nlohmann::json::array();
  const double reference = Median(times.at("ncclMemAlloc"));
  for (const auto& [name, values] : times) {
    const double median = Median(values);
    rows.push_back({{"made_by", name}, {"median_us", median}, {"times_faster_than_ncclMemAlloc", reference / median}});
  }
  return nlohmann::json{{"bytes", bytes},
                        {"rounds", rounds},
                        {"driver", driver.description},
                        {"rows", rows},
                        {"growth_ratio", Median(times.at(kGrowth)) / Median(times.at(kRawCalls))}};
}

void Print(const nlohmann::json& results) {
  std::printf("# %s\n# %s, host time, median of %d rounds\n%-14s %14s %22s\n",
              results["driver"].get<std::string>().c_str(),
              internal::FormatBytes(results["bytes"].get<uint64_t>()).c_str(), results["rounds"].get<int>(), "made by",
              "median (us)", "faster than NCCL's");
  for (const nlohmann::json& row : results["rows"]) {
    std::printf("%-14s %14.1f %21.1fx\n", row["made_by"].get<std::string>().c_str(), row["median_us"].get<double>(),
                row["times_faster_than_ncclMemAlloc"].get<double>());
  }
  std::printf("# growth takes %.2f times the raw calls\n", results["growth_ratio"].get<double>());
}

Result<int> Run(const Ranks& ranks, const Arguments& arguments) {
  const uint64_t bytes = COMMPOOL_TRY(internal::ParseBytes(arguments.bytes));
  const std::unique_ptr<RankDevice> device = COMMPOOL_TRY(OpenRankDevice(ranks));
  const internal::Driver& driver = *device->driver;
  const Shown shown = ranks.first() ? Shown::kYes : Shown::kNo;
  const Times times = COMMPOOL_TRY(Measure(driver, device->device, bytes, arguments.rounds, shown));
  const nlohmann::json results = ToJson(driver, bytes, arguments.rounds, times);
  return Report(arguments.output, driver.description, results, [&] { Print(results); });
}

}  // namespace

void AddBenchMake(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("make", "The time to make a pool's memory, by backing, beside ncclMemAlloc");
  command.Footer("Example:\n  commpool bench make --bytes 512M --record tools/bench/results/make.jsonl");
  command.AddOption("--bytes", arguments->bytes, "Of the one segment that is made").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--rounds", arguments->rounds, "Rounds over all backings").Between(1, 1000).ShowPreset();
  AddOutputOptions(command, arguments->output);
  command.Do(WithRanks([arguments](const Ranks& ranks) { return Run(ranks, *arguments); }));
}

}  // namespace commpool::cli
