#include <algorithm>
#include <utility>

#include "commpool/scope.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/allreduce.h"
#include "tools/cli/collective_timer.h"
#include "tools/cli/shared_bytes.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

// Small whole numbers: their sums are exact in float, in any order.
float ValueOf(int rank, size_t index) { return static_cast<float>((index + static_cast<size_t>(rank) * 3) % 17); }

class Measurement {
 public:
  Measurement(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options, Pool& pool)
      : ranks_(ranks), device_(device), driver_(*device.driver), options_(options), pool_(pool) {}

  Result<AllReduceRow> Measure(uint64_t bytes, NcclLog& log) {
    PoolScope scope(pool_);
    Buffer sent = COMMPOOL_TRY(allocate(bytes, device_.stream));
    Buffer received = COMMPOOL_TRY(allocate(bytes, device_.stream));
    COMMPOOL_TRY(FillInput(sent));

    AllReduceRow row;
    row.bytes = bytes;
    log.Next();
    COMMPOOL_TRY(Time(sent, received, row));
    const LogFindings findings = log.Next();
    row.used = static_cast<UsedRegistration>(static_cast<int>(ranks_.Max(static_cast<double>(findings.used))));
    row.could_use_local = ranks_.Max(findings.could_use_local ? 1 : 0) > 0;
    if (options_.check) {
      const long wrong = COMMPOOL_TRY(CountWrong(received));
      row.wrong = ranks_.Sum(wrong);
    }
    return row;
  }

 private:
  Status FillInput(const Buffer& buffer) {
    Bytes bytes = COMMPOOL_TRY(MakeBytes(buffer.bytes()));
    auto* const values = reinterpret_cast<float*>(bytes.data());
    for (size_t index = 0; index < bytes.size() / sizeof(float); ++index) values[index] = ValueOf(ranks_.rank(), index);
    const auto address = reinterpret_cast<CUdeviceptr>(buffer.data());
    return internal::CheckCuda(driver_, driver_.cuda.cuMemcpyHtoDAsync(address, values, bytes.size(), device_.stream),
                               {.call = "cuMemcpyHtoDAsync", .device = device_.device, .bytes = buffer.bytes()});
  }

  Status AllReduce(const Buffer& sent, const Buffer& received) {
    // Out of place: NCCL never uses a local registration for an all-reduce in place.
    return internal::CheckNccl(driver_,
                               driver_.nccl.ncclAllReduce(sent.data(), received.data(), sent.bytes() / sizeof(float),
                                                          ncclFloat, ncclSum, device_.communicator, device_.stream),
                               {.call = "ncclAllReduce", .device = device_.device, .bytes = sent.bytes()},
                               device_.communicator);
  }

  int Iterations(uint64_t bytes) const {
    if (options_.iterations > 0) return options_.iterations;
    if (driver_.kind == internal::DriverChoice::kEmulated) return 2;  // modelled times do not vary
    return bytes <= MiB(1) ? 200 : 40;
  }

  Status Time(const Buffer& sent, const Buffer& received, AllReduceRow& row) {
    const int iterations = Iterations(row.bytes);
    const int warm_up = driver_.kind == internal::DriverChoice::kEmulated ? 1 : 10;
    for (int iteration = 0; iteration < warm_up; ++iteration) {
      COMMPOOL_TRY(AllReduce(sent, received));
    }
    driver_.cuda.cuStreamSynchronize(device_.stream);
    ranks_.Wait();
    const TimedEvent begin(driver_);
    const TimedEvent end(driver_);
    driver_.cuda.cuEventRecord(begin.get(), device_.stream);
    for (int iteration = 0; iteration < iterations; ++iteration) {
      COMMPOOL_TRY(AllReduce(sent, received));
    }
    driver_.cuda.cuEventRecord(end.get(), device_.stream);
    COMMPOOL_TRY(internal::CheckCuda(driver_, driver_.cuda.cuStreamSynchronize(device_.stream),
                                     {.call = "cuStreamSynchronize", .device = device_.device}));
    float milliseconds = 0;
    driver_.cuda.cuEventElapsedTime(&milliseconds, begin.get(), end.get());
    row.time_us = ranks_.Max(milliseconds * 1000.0 / iterations);
    const double ranks = ranks_.count();
    row.algbw_gbps = static_cast<double>(row.bytes) / row.time_us / 1000.0;
    row.busbw_gbps = row.algbw_gbps * 2 * (ranks - 1) / ranks;
    return Status();
  }

  Result<long> CountWrong(const Buffer& received) {
    Bytes bytes = COMMPOOL_TRY(MakeBytes(received.bytes()));
    const auto address = reinterpret_cast<CUdeviceptr>(received.data());
    COMMPOOL_TRY(internal::CheckCuda(driver_, driver_.cuda.cuMemcpyDtoH(bytes.data(), address, bytes.size()),
                                     {.call = "cuMemcpyDtoH", .device = device_.device, .bytes = bytes.size()}));
    const auto* const values = reinterpret_cast<const float*>(bytes.data());
    long wrong = 0;
    for (size_t index = 0; index < bytes.size() / sizeof(float); ++index) {
      float expected = 0;
      for (int rank = 0; rank < ranks_.count(); ++rank) expected += ValueOf(rank, index);
      if (values[index] != expected) ++wrong;
    }
    return wrong;
  }

  const Ranks& ranks_;
  const RankDevice& device_;
  const internal::Driver& driver_;
  const AllReduceOptions& options_;
  Pool& pool_;
};

// As a user would write it: a pool, registered, with room for the largest row.
Result<Pool> MakePool(const RankDevice& device, const AllReduceOptions& options) {
  const bool window = options.asked == UsedRegistration::kWindow;
  Result<Pool> pool = Pool::create({.name = "allreduce",
                                    .device = device.device,
                                    .symmetric_across = window ? device.communicator : nullptr,
                                    .backing = options.backing,
                                    .location = options.location});
  if (!pool.ok()) return pool;
  if (window && options.location != Location::kDevice) {
    return Status(StatusCode::kNotSupported,
                  "no collective of NCCL uses a window of host memory: device code alone does");
  }
  if (options.asked == UsedRegistration::kLocal) COMMPOOL_TRY(pool->register_with(device.communicator));
  const uint64_t room = 2 * std::max<uint64_t>(options.sizes.back(), MiB(1));  // for both buffers
  COMMPOOL_TRY(pool->reserve(room));
  if (options.asked != UsedRegistration::kLocal) return pool;
  COMMPOOL_TRY(pool->register_pending().status());
  return pool;
}

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kNotSupported || status.code() == StatusCode::kInvalidArgument;
}

}  // namespace

AllReduceReport RunAllReduce(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                             NcclLog& log) {
  AllReduceReport report;
  Result<Pool> pool = MakePool(device, options);
  if (!pool.ok()) {
    (IsRefusal(pool.status()) ? report.refused : report.failed) = pool.status();
    return report;
  }
  Measurement measurement(ranks, device, options, *pool);
  Progress progress("allreduce: row", options.sizes.size(), ranks.first() ? Shown::kYes : Shown::kNo);
  for (const uint64_t bytes : options.sizes) {
    progress.Show(report.rows.size(), internal::FormatBytes(bytes));
    Result<AllReduceRow> row = measurement.Measure(bytes, log);
    if (!row.ok()) {
      report.failed = row.status();
      return report;  // the others then wait in a collective, until mpirun ends them
    }
    report.rows.push_back(*row);
    report.failed = pool->reclaim().status();  // the row's buffers are free on every rank now
    if (!report.failed.ok()) return report;
  }
  report.failed = pool->close();
  return report;
}

}  // namespace commpool::cli
