// commpool bench threshold: what a release threshold costs a loop, and which threshold the loop needs.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/bytes.h"
#include "src/base/try.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/threshold_loop.h"
#include "tools/cli/sizes.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kStep = internal::kMiB * 2;

struct Arguments {
  std::string bytes = "512M";
  int rounds = 0;  // 0: chosen by the driver
  OutputOptions output;
};

struct Row {
  std::string threshold;
  uint64_t threshold_bytes = 0;
  std::unique_ptr<ThresholdLoop> loop;
  std::vector<double> turns_us;
};

struct Column {
  const char* key;
  const char* title;
  ThresholdPool pool;
  std::vector<Row> rows;
  uint64_t needed_bytes = 0;
};

Status MakeRows(const SoloDevice& device, uint64_t bytes, Column& column) {
  const std::pair<const char*, uint64_t> thresholds[] = {
      {"0", 0}, {"half", bytes / 2}, {"exact", bytes}, {"unlimited", UINT64_MAX}};
  for (const auto& [name, threshold] : thresholds) {
    std::unique_ptr<ThresholdLoop> loop = COMMPOOL_TRY(ThresholdLoop::Create(device, column.pool, bytes, threshold));
    column.rows.push_back({name, threshold, std::move(loop), {}});
  }
  return Status();
}

// Whether a pool with this threshold takes nothing from the driver once the loop is warm.
Result<bool> Suffices(const SoloDevice& device, ThresholdPool pool, uint64_t bytes, uint64_t threshold) {
  constexpr int kTurns = 3;
  std::unique_ptr<ThresholdLoop> loop = COMMPOOL_TRY(ThresholdLoop::Create(device, pool, bytes, threshold));
  for (int turn = 0; turn < 2 * kTurns; ++turn) {
    if (turn == kTurns) loop->Grew();
    COMMPOOL_TRY(loop->Turn(ThresholdLoop::Use::kTouch));
  }
  return !loop->Grew();
}

// By bisection, in steps of 2 MiB; `UINT64_MAX` where not even twice the bytes are enough.
Result<uint64_t> FindNeeded(const SoloDevice& device, ThresholdPool pool, uint64_t bytes) {
  uint64_t enough = internal::RoundUp(2 * bytes, kStep);
  Result<bool> most = Suffices(device, pool, bytes, enough);
  Result<bool> none = Suffices(device, pool, bytes, 0);
  for (const Result<bool>* bound : {&most, &none}) {
    if (!bound->ok()) return bound->status();
  }
  if (!*most) return UINT64_MAX;
  if (*none) return uint64_t{0};
  uint64_t too_little = 0;
  while (enough - too_little > kStep) {
    const uint64_t middle = too_little + internal::RoundDown((enough - too_little) / 2, kStep);
    const bool suffices = COMMPOOL_TRY(Suffices(device, pool, bytes, middle));
    (suffices ? enough : too_little) = middle;
  }
  return enough;
}

Status Measure(const SoloDevice& device, uint64_t bytes, int rounds, std::vector<Column>& columns) {
  constexpr int kWarmTurns = 2;
  Progress progress("bench threshold: round", static_cast<uint64_t>(kWarmTurns + rounds));
  for (int round = -kWarmTurns; round < rounds; ++round) {
    progress.Show(static_cast<uint64_t>(round + kWarmTurns));
    for (Column& column : columns) {
      for (Row& row : column.rows) {
        const double turn = COMMPOOL_TRY(row.loop->Turn(ThresholdLoop::Use::kWhole));
        if (round >= 0) row.turns_us.push_back(turn);
      }
    }
  }
  for (Column& column : columns) {
    for (Row& row : column.rows) row.loop.reset();  // the search below needs all of the device's memory
  }
  for (Column& column : columns) {
    progress.Show(static_cast<uint64_t>(kWarmTurns + rounds), std::string("what ") + column.title + " needs");
    column.needed_bytes = COMMPOOL_TRY(FindNeeded(device, column.pool, bytes));
  }
  return Status();
}

nlohmann::json ToJson(const SoloDevice& device, uint64_t bytes, int rounds, const std::vector<Column>& columns) {
  nlohmann::json json = {{"bytes", bytes},
                         {"driver", device.driver().description},
                         {"rounds", rounds},
                         {"needed_bytes", nlohmann::json::object()},
                         {"rows", nlohmann::json::array()}};
  for (const Column& column : columns) {
    json["needed_bytes"][column.key] = column.needed_bytes;
    for (const Row& row : column.rows) {
      json["rows"].push_back({{"pool", column.key},
                              {"threshold", row.threshold},
                              {"threshold_bytes", row.threshold_bytes},
                              {"us_per_loop", Median(row.turns_us)}});
    }
  }
  return json;
}

void Print(const SoloDevice& device, uint64_t bytes, int rounds, const std::vector<Column>& columns) {
  std::printf("# %s\n# 4 blocks of %s: allocate, memset, free, synchronise; %s, median of %d\n%-16s",
              device.driver().description.c_str(), internal::FormatBytes(bytes / 4).c_str(),
              device.emulated() ? "modelled microseconds a loop" : "microseconds a loop", rounds, "threshold");
  for (const Column& column : columns) std::printf(" %16s", column.title);
  std::printf("\n");
  for (size_t index = 0; index < columns.front().rows.size(); ++index) {
    std::printf("%-16s", columns.front().rows[index].threshold.c_str());
    for (const Column& column : columns) std::printf(" %16.1f", Median(column.rows[index].turns_us));
    std::printf("\n");
  }
  std::printf("%-16s", "needed");
  for (const Column& column : columns) {
    std::printf(" %16s",
                column.needed_bytes == UINT64_MAX ? "unlimited" : internal::FormatBytes(column.needed_bytes).c_str());
  }
  std::printf("\n");
}

// Modelled times do not vary.
int RoundsFor(const SoloDevice& device, const Arguments& arguments) {
  if (arguments.rounds > 0) return arguments.rounds;
  return device.emulated() ? 1 : 21;
}

Result<int> Run(const Arguments& arguments) {
  const uint64_t asked = COMMPOOL_TRY(internal::ParseBytes(arguments.bytes));
  if (asked < internal::kMiB || asked > 64 * internal::kGiB) {
    return Status(StatusCode::kInvalidArgument, "--bytes " + arguments.bytes + ": from 1M to 64G");
  }
  const uint64_t bytes = internal::RoundUp(asked, 4 * kStep);
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(1, DriverTimes::kUnmeasured));
  std::vector<Column> columns;
  columns.push_back({"commpool", "commpool", ThresholdPool::kCommpool, {}});
  columns.push_back({"cuda_async", "cudaMallocAsync", ThresholdPool::kCudaAsync, {}});
  for (Column& column : columns) {
    Status status = MakeRows(*device, bytes, column);
    if (status.ok()) continue;
    const bool absent = status.code() == StatusCode::kNotSupported && column.pool == ThresholdPool::kCudaAsync;
    if (!absent) return status;
    std::cerr << "commpool bench threshold: without cudaMallocAsync: " << status.message() << '\n';
  }
  std::erase_if(columns, [](const Column& column) { return column.rows.empty(); });
  const int rounds = RoundsFor(*device, arguments);
  COMMPOOL_TRY(Measure(*device, bytes, rounds, columns));
  const nlohmann::json results = ToJson(*device, bytes, rounds, columns);
  return Report(arguments.output, device->driver().description, results,
                [&] { Print(*device, bytes, rounds, columns); });
}

}  // namespace

void AddBenchThreshold(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("threshold", "What release thresholds cost a loop, and which one it needs");
  command.Footer("Example:\n  commpool bench threshold --bytes 512M");
  command.AddOption("--bytes", arguments->bytes, "That a turn of the loop allocates, in four blocks")
      .Checked(WhyNoSize)
      .ShowPreset();
  command
      .AddOption("--rounds", arguments->rounds, "Turns of each loop that are counted (default 21; 1 on the emulator)")
      .Between(1, 100'000);
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
