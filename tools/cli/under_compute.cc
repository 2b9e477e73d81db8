#include "tools/cli/under_compute.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/buffer_sources.h"
#include "tools/cli/compute_load.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

constexpr char kZeroSm[] = "zero-SM";

// One contender in a row: a kind of buffers, and the rank's device with their communicator.
struct Contender {
  std::string kind;
  const RankDevice* device = nullptr;
  BufferSource* source = nullptr;
  BufferPair buffers = {};
};

// The rank's device with a communicator that lets NCCL gather by copy engines; nothing, and why, where NCCL cannot.
Result<std::unique_ptr<RankDevice>> OpenZeroSm(const Ranks& ranks, const RankDevice& device) {
  const internal::Driver& driver = *device.driver;
  if (driver.nccl.version < 22803 || driver.nccl.ncclCommInitRankConfig == nullptr) {
    return Status(StatusCode::kNotSupported, "NCCL gathers by copy engines since 2.28.3");
  }
  auto made = std::make_unique<RankDevice>();
  made->driver = device.driver;
  made->device = device.device;
  Status status = internal::CheckCuda(driver, driver.cuda.cuStreamCreate(&made->stream, CU_STREAM_NON_BLOCKING),
                                      {.call = "cuStreamCreate", .device = device.device});
  if (status = ranks.FirstFailure(status); !status.ok()) return status;
  ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
  configuration.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  Result<ncclComm_t> communicator = MakeCommunicator(ranks, driver, device.device, &configuration);
  if (!communicator.ok()) return communicator.status();
  made->communicator = *communicator;
  return made;
}

class Meter {
 public:
  Meter(const Ranks& ranks, const RankDevice& device, ComputeLoad& load) : ranks_(ranks), device_(device), load_(load) {
    emulated_ = CollectiveTimer(ranks, device).emulated();
  }
  ~Meter() {
    if (stream_ != nullptr) device_.driver->cuda.cuStreamDestroy(stream_);
  }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  Status Open() {
    COMMPOOL_TRY(Check(device_.driver->cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    const int kernels = emulated_ ? 1 : 32;
    for (int turn = 0; turn < 2; ++turn) {  // the first turn warms up
      const double time = COMMPOOL_TRY(Time(nullptr, {}, 0, kernels));
      kernel_us_ = time / kernels;
    }
    return Status();
  }
  double kernel_us() const { return kernel_us_; }

  // Measures a row's kinds in turn, forwards and backwards. Each round has the compute alone at both ends.
  Result<UnderComputeRow> Measure(Collective collective, uint64_t bytes, std::vector<Contender>& contenders,
                                  int rounds) {
    UnderComputeRow row{.collective = collective, .bytes = bytes, .kinds = {}};
    double longest = 0;
    for (const Contender& contender : contenders) {
      const CollectiveTimer timer(ranks_, *contender.device);
      const double alone = COMMPOOL_TRY(timer.Time(collective, Place::kOut, bytes, contender.buffers));
      row.kinds.push_back({.kind = contender.kind, .alone_us = alone});
      longest = std::max(longest, alone);
    }
    // The compute takes twice as long as the collectives, so that they end inside.
    const int collectives = emulated_ ? 2 : 8;
    const int kernels = std::max(collectives, static_cast<int>(std::ceil(2 * collectives * longest / kernel_us_)));
    std::vector<std::vector<double>> added(contenders.size());
    for (int round = -1; round < rounds; ++round) {  // round -1 warms up
      std::vector<double> times(contenders.size());
      const double before = COMMPOOL_TRY(Time(nullptr, collective, bytes, kernels));
      for (size_t turn = 0; turn < contenders.size(); ++turn) {
        const size_t place = round % 2 == 0 ? turn : contenders.size() - 1 - turn;
        times[place] = COMMPOOL_TRY(Time(&contenders[place], collective, bytes, kernels, collectives));
      }
      const double after = COMMPOOL_TRY(Time(nullptr, collective, bytes, kernels));
      for (size_t place = 0; place < times.size() && round >= 0; ++place) {
        added[place].push_back((times[place] - (before + after) / 2) / collectives);
      }
    }
    for (size_t place = 0; place < added.size(); ++place) row.kinds[place].added_us = SpreadOf(added[place]);
    return row;
  }

 private:
  // Microseconds until all kernels, and the collectives beside them, have ended; of the slowest rank.
  Result<double> Time(const Contender* contender, Collective collective, uint64_t bytes, int kernels,
                      int collectives = 0) const {
    const internal::CudaDriver& cuda = device_.driver->cuda;
    const TimedEvent begin(*device_.driver);
    const TimedEvent end(*device_.driver);
    const TimedEvent collected(*device_.driver);
    Status status = Check(cuda.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    ranks_.Wait();
    if (status.ok()) status = Check(cuda.cuEventRecord(begin.get(), stream_), "cuEventRecord");
    if (status.ok() && contender != nullptr) {
      status = Check(cuda.cuStreamWaitEvent(contender->device->stream, begin.get(), 0), "cuStreamWaitEvent");
    }
    for (int kernel = 0; kernel < kernels && status.ok(); ++kernel) {
      status = load_.Launch(stream_);
      if (!status.ok() || contender == nullptr || kernel >= collectives) continue;
      status = CollectiveTimer(ranks_, *contender->device).Launch(collective, Place::kOut, bytes, contender->buffers);
    }
    if (status.ok() && contender != nullptr) {
      cuda.cuEventRecord(collected.get(), contender->device->stream);
      status = Check(cuda.cuStreamWaitEvent(stream_, collected.get(), 0), "cuStreamWaitEvent");
    }
    if (status.ok()) status = Check(cuda.cuEventRecord(end.get(), stream_), "cuEventRecord");
    if (status.ok()) status = Check(cuda.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    if (!status.ok()) return status;
    float milliseconds = 0;
    cuda.cuEventElapsedTime(&milliseconds, begin.get(), end.get());
    return ranks_.Max(static_cast<double>(milliseconds) * 1000.0);
  }

  Status Check(CUresult result, const char* call) const {
    return internal::CheckCuda(*device_.driver, result, {.call = call, .device = device_.device});
  }

  const Ranks& ranks_;
  const RankDevice& device_;
  ComputeLoad& load_;
  bool emulated_ = false;
  CUstream stream_ = nullptr;
  double kernel_us_ = 1;
};

// The kinds that can run a collective: NCCL's copy engines can gather, but cannot add.
Result<std::vector<Contender>> TakeBuffers(std::vector<Contender> all, Collective collective, uint64_t bytes) {
  if (collective != Collective::kAllGather) {
    std::erase_if(all, [](const Contender& contender) { return contender.kind == kZeroSm; });
  }
  for (Contender& contender : all) {
    contender.buffers = COMMPOOL_TRY(contender.source->Take(bytes));
  }
  return all;
}

Status GiveBack(const std::vector<Contender>& contenders) {
  for (const Contender& contender : contenders) {
    COMMPOOL_TRY(contender.source->GiveBack());
  }
  return Status();
}

Status MeasureRows(const Ranks& ranks, Meter& meter, const std::vector<Contender>& all,
                   const std::vector<uint64_t>& sizes, UnderCompute& measured) {
  Progress progress("advise: row", 3 * sizes.size(), ranks.first() ? Shown::kYes : Shown::kNo);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    for (const uint64_t bytes : sizes) {
      progress.Show(measured.rows.size(), std::string(Name(collective)) + " of " + internal::FormatBytes(bytes));
      std::vector<Contender> contenders = COMMPOOL_TRY(TakeBuffers(all, collective, bytes));
      UnderComputeRow row = COMMPOOL_TRY(meter.Measure(collective, bytes, contenders, measured.rounds));
      measured.rows.push_back(std::move(row));
      COMMPOOL_TRY(GiveBack(contenders));
    }
  }
  return Status();
}

}  // namespace

const AddedTime& LeastAdded(const std::vector<AddedTime>& kinds) {
  const AddedTime* least = &kinds.front();
  for (const AddedTime& kind : kinds) {
    if (kind.added_us.high < least->added_us.low) least = &kind;
  }
  return *least;
}

Result<UnderCompute> MeasureUnderCompute(const Ranks& ranks, const RankDevice& device,
                                         const std::vector<uint64_t>& sizes, int rounds) {
  UnderCompute measured;
  Result<std::unique_ptr<ComputeLoad>> load = MakeComputeLoad(*device.driver, device.device);
  COMMPOOL_TRY(ranks.FirstFailure(load.status()));
  measured.compute = (*load)->description();
  measured.rounds = rounds > 0 ? rounds : CollectiveTimer(ranks, device).emulated() ? 2 : 9;
  BufferSources sources = COMMPOOL_TRY(MakePoolSources(device, sizes.back(), measured.without));
  std::vector<Contender> all;
  for (auto& [kind, source] : sources) all.push_back({Name(kind), &device, source.get()});

  Result<std::unique_ptr<RankDevice>> zero_device = OpenZeroSm(ranks, device);
  std::unique_ptr<BufferSource> zero_source;
  Status status = zero_device.status();
  if (status.ok()) {
    Result<std::unique_ptr<BufferSource>> made = MakePoolSource(**zero_device, BufferKind::kWindow, sizes.back());
    status = made.status();
    if (made.ok()) zero_source = std::move(*made);
  }
  if (status.ok()) {
    all.push_back({kZeroSm, zero_device->get(), zero_source.get()});
  } else if (status.code() == StatusCode::kNotSupported) {
    measured.without.push_back(std::string(kZeroSm) + ": " + status.message());
  } else {
    return status;
  }

  Meter meter(ranks, device, **load);
  status = meter.Open();
  if (status.ok()) status = MeasureRows(ranks, meter, all, sizes, measured);
  measured.kernel_us = meter.kernel_us();
  if (status.ok() && zero_source != nullptr) status = zero_source->Close();
  if (status.ok()) status = CloseAll(sources);
  if (!status.ok()) return status;
  return measured;
}

nlohmann::json ToJson(const UnderCompute& measured) {
  nlohmann::json rows = nlohmann::json::array();
  for (const UnderComputeRow& row : measured.rows) {
    nlohmann::json kinds = nlohmann::json::object();
    for (const AddedTime& kind : row.kinds) {
      kinds[kind.kind] = {{"alone_us", kind.alone_us},
                          {"added_us", kind.added_us.median},
                          {"low", kind.added_us.low},
                          {"high", kind.added_us.high}};
    }
    rows.push_back({{"collective", Name(row.collective)},
                    {"bytes", row.bytes},
                    {"kinds", kinds},
                    {"least", LeastAdded(row.kinds).kind}});
  }
  return {{"compute", measured.compute},
          {"kernel_us", measured.kernel_us},
          {"rounds", measured.rounds},
          {"without", measured.without},
          {"rows", rows}};
}

void Print(const UnderCompute& measured) {
  std::printf(
      "# compute: %s, %.0f us a kernel; medians of %d rounds, in brackets an interval with 95 %%\n"
      "# what a collective, out of place, adds to compute that it runs beside (alone: its own time)\n",
      measured.compute.c_str(), measured.kernel_us, measured.rounds);
  for (const std::string& kind : measured.without) std::printf("# without %s\n", kind.c_str());
  std::printf("%-14s %12s %-8s %10s %10s   %s\n", "", "bytes", "", "alone us", "adds us", "");
  for (const UnderComputeRow& row : measured.rows) {
    for (const AddedTime& kind : row.kinds) {
      std::printf("%-14s %12llu %-8s %10.1f %10.1f   [%.1f, %.1f]%s\n", Name(row.collective),
                  static_cast<unsigned long long>(row.bytes), kind.kind.c_str(), kind.alone_us, kind.added_us.median,
                  kind.added_us.low, kind.added_us.high, &kind == &LeastAdded(row.kinds) ? "  least" : "");
    }
  }
}

}  // namespace commpool::cli
