#include "tools/cli/bench/threshold_loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "commpool/pool.h"
#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/emulator/extension.h"
#include "tools/cli/bench/async_pool.h"

namespace commpool::cli {

namespace {

class CommpoolLoop : public ThresholdLoop {
 public:
  CommpoolLoop(const SoloDevice& device, Pool pool, uint64_t bytes)
      : ThresholdLoop(device, bytes), pool_(std::move(pool)) {}

  bool Grew() override {
    Result<Statistics> statistics = pool_.stats();
    const uint64_t segments = statistics.ok() ? statistics->reserved_segments.total : 0;
    return std::exchange(segments_, segments) != segments;
  }

 protected:
  void* Allocate(uint64_t bytes, CUstream stream) override {
    void* block = nullptr;
    commpool_pool_allocate(pool_.handle(), bytes, stream, &block);
    return block;
  }
  void Free(void* block, CUstream) override { commpool_free(block); }

 private:
  Pool pool_;
  uint64_t segments_ = 0;
};

class AsyncLoop : public ThresholdLoop {
 public:
  AsyncLoop(const SoloDevice& device, AsyncPool pool, uint64_t bytes)
      : ThresholdLoop(device, bytes), pool_(std::move(pool)) {}

  // The pool grew if a turn began with less memory than it used.
  bool Grew() override { return std::exchange(grew_, false); }

 protected:
  void* Allocate(uint64_t bytes, CUstream stream) override {
    const uint64_t before = pool_.reserved_bytes();
    void* const block = pool_.Allocate(bytes, stream);
    grew_ = grew_ || pool_.reserved_bytes() > before;
    return block;
  }
  void Free(void* block, CUstream stream) override { pool_.Free(block, stream); }

 private:
  AsyncPool pool_;
  bool grew_ = false;
};

}  // namespace

Result<std::unique_ptr<ThresholdLoop>> ThresholdLoop::Create(const SoloDevice& device, ThresholdPool kind,
                                                             uint64_t bytes, uint64_t threshold_bytes) {
  if (kind == ThresholdPool::kCommpool) {
    Pool pool = COMMPOOL_TRY(Pool::create({.release_threshold_bytes = threshold_bytes, .name = "bench threshold"}));
    return std::unique_ptr<ThresholdLoop>(std::make_unique<CommpoolLoop>(device, std::move(pool), bytes));
  }
  AsyncPool pool = COMMPOOL_TRY(AsyncPool::Create(device.driver(), threshold_bytes));
  return std::unique_ptr<ThresholdLoop>(std::make_unique<AsyncLoop>(device, std::move(pool), bytes));
}

double ThresholdLoop::NowInMicroseconds() const {
  const auto emulated =
      reinterpret_cast<decltype(&commpoolEmulatorNow)>(device_.driver().extension("commpoolEmulatorNow"));
  if (emulated != nullptr) return emulated();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status ThresholdLoop::AllocateUseFree(CUstream stream, Use use) {
  std::array<void*, 4> blocks{};
  const uint64_t bytes = bytes_ / blocks.size();
  const uint64_t used = use == Use::kWhole ? bytes : std::min<uint64_t>(bytes, 4096);
  Status status;
  for (void*& block : blocks) {
    block = Allocate(bytes, stream);
    if (block == nullptr) status = Status(StatusCode::kOutOfMemory, "a pool has no room for the loop's blocks");
    if (!status.ok()) break;
    const auto address = reinterpret_cast<CUdeviceptr>(block);
    status = internal::CheckCuda(device_.driver(), device_.driver().cuda.cuMemsetD8Async(address, 1, used, stream),
                                 {.call = "cuMemsetD8Async", .device = 0, .bytes = used});
    if (!status.ok()) break;
  }
  for (void* block : blocks) {
    if (block != nullptr) Free(block, stream);
  }
  return status;
}

Result<double> ThresholdLoop::Turn(Use use) {
  const CUstream stream = device_.streams().front();
  const double start = NowInMicroseconds();
  COMMPOOL_TRY(AllocateUseFree(stream, use));
  COMMPOOL_TRY(internal::CheckCuda(device_.driver(), device_.driver().cuda.cuStreamSynchronize(stream),
                                   {.call = "cuStreamSynchronize", .device = 0}));
  return NowInMicroseconds() - start;
}

}  // namespace commpool::cli
