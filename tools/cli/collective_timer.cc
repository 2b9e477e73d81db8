#include "tools/cli/collective_timer.h"

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kReduceScatter:
      return "reduce-scatter";
  }
  return "?";
}

const char* Name(Place place) { return place == Place::kIn ? "in place" : "out of place"; }

Status CollectiveTimer::Launch(Collective collective, Place place, uint64_t bytes, const BufferPair& buffers) const {
  const internal::NcclLibrary& nccl = device_.driver->nccl;
  const size_t count = bytes / sizeof(float);
  const size_t part = count / static_cast<size_t>(ranks_.count());
  const size_t first = part * static_cast<size_t>(ranks_.rank());  // of this rank's part
  const bool in = place == Place::kIn;
  auto* const sent = static_cast<float*>(buffers.sent);
  auto* const received = static_cast<float*>(buffers.received);
  ncclResult_t result = ncclSuccess;
  switch (collective) {
    case Collective::kAllReduce:
      result = nccl.ncclAllReduce(in ? received : sent, received, count, ncclFloat, ncclSum, device_.communicator,
                                  device_.stream);
      break;
    case Collective::kAllGather:
      result = nccl.ncclAllGather(in ? received + first : sent, received, part, ncclFloat, device_.communicator,
                                  device_.stream);
      break;
    case Collective::kReduceScatter:
      result = nccl.ncclReduceScatter(sent, in ? sent + first : received, part, ncclFloat, ncclSum,
                                      device_.communicator, device_.stream);
      break;
  }
  return internal::CheckNccl(*device_.driver, result,
                             {.call = Name(collective), .device = device_.device, .bytes = bytes},
                             device_.communicator);
}

int CollectiveTimer::Batch(uint64_t bytes) const {
  if (emulated()) return 1;
  if (bytes <= internal::kMiB) return 100;
  return bytes <= 64 * internal::kMiB ? 20 : 5;
}

Result<double> CollectiveTimer::Time(Collective collective, Place place, uint64_t bytes,
                                     const BufferPair& buffers) const {
  const internal::Driver& driver = *device_.driver;
  const int warm_up = emulated() ? 1 : 5;
  const int batch = Batch(bytes);
  const TimedEvent begin(driver);
  const TimedEvent end(driver);
  for (int turn = -warm_up; turn < batch; ++turn) {
    if (turn == 0) {
      driver.cuda.cuStreamSynchronize(device_.stream);
      ranks_.Wait();
      driver.cuda.cuEventRecord(begin.get(), device_.stream);
    }
    COMMPOOL_TRY(Launch(collective, place, bytes, buffers));
  }
  driver.cuda.cuEventRecord(end.get(), device_.stream);
  COMMPOOL_TRY(internal::CheckCuda(driver, driver.cuda.cuStreamSynchronize(device_.stream),
                                   {.call = "cuStreamSynchronize", .device = device_.device}));
  float milliseconds = 0;
  driver.cuda.cuEventElapsedTime(&milliseconds, begin.get(), end.get());
  return ranks_.Max(static_cast<double>(milliseconds) * 1000.0 / batch);
}

}  // namespace commpool::cli
