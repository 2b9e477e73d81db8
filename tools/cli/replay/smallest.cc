#include <algorithm>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/cli/replay/replay_run.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kStep = MiB(2);

// Whether the trace completes. Failures for other reasons than memory are errors.
Result<bool> Completes(SoloDevice& device, const Trace& trace, const PoolChoice& choice, uint64_t limit_bytes) {
  COMMPOOL_TRY(detail::FromC(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, limit_bytes)));
  Status status = ReplayInPool(device, trace, choice).status();
  COMMPOOL_TRY(detail::FromC(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX)));
  if (status.ok()) return true;
  const bool full = status.code() == StatusCode::kOutOfMemory || status.code() == StatusCode::kExhausted;
  return full ? Result<bool>(false) : Result<bool>(status);
}

}  // namespace

Result<uint64_t> FindSmallestDevice(SoloDevice& device, const Trace& trace, const PoolChoice& choice,
                                    uint64_t enough_bytes) {
  // A limit below the peak cannot be enough. The answer is close to it, so strides double from there.
  uint64_t too_small = internal::RoundUp(trace.peak_requested_bytes, kStep) - kStep;
  const uint64_t most = std::max(2 * internal::RoundUp(enough_bytes, kStep), too_small + kStep);
  uint64_t stride = kStep;
  uint64_t enough = 0;
  while (enough == 0 && too_small < most) {
    const uint64_t limit = std::min(too_small + stride, most);
    const bool completes = COMMPOOL_TRY(Completes(device, trace, choice, limit));
    (completes ? enough : too_small) = limit;
    stride *= 2;
  }
  if (enough == 0) {
    return Status(StatusCode::kOutOfMemory, trace.name + " does not complete with " + internal::FormatBytes(most));
  }
  while (enough - too_small > kStep) {
    const uint64_t middle = too_small + internal::RoundDown((enough - too_small) / 2, kStep);
    const bool completes = COMMPOOL_TRY(Completes(device, trace, choice, middle));
    (completes ? enough : too_small) = middle;
  }
  return enough;
}

}  // namespace commpool::cli
