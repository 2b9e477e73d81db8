#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "src/emulator/extension.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/replay/patience.h"
#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

namespace {

struct Emulator {
  decltype(&commpoolEmulatorEnqueue) enqueue = nullptr;
  decltype(&commpoolEmulatorComplete) complete = nullptr;
  decltype(&commpoolEmulatorNow) now = nullptr;
};

// One operation. The device's worker begins it and the host releases it, in either order; the second of the two ends
// it.
struct Operation {
  enum class Phase { kQueued, kBegun, kReleased, kEnded };

  const Emulator* emulator = nullptr;
  commpoolEmulatorOperation handle = nullptr;
  double start_us = 0;
  std::atomic<Phase> phase{Phase::kQueued};

  void End() {
    emulator->complete(handle, std::max(start_us, emulator->now()), CUDA_SUCCESS);
    phase.store(Phase::kEnded, std::memory_order_release);
  }

  static void Begin(void* context, commpoolEmulatorOperation handle, const void* const*, void* const*,
                    double start_us) {
    auto* const self = static_cast<Operation*>(context);
    self->handle = handle;
    self->start_us = start_us;
    Phase expected = Phase::kQueued;
    if (!self->phase.compare_exchange_strong(expected, Phase::kBegun)) self->End();
  }

  void Release() {
    Phase expected = Phase::kQueued;
    if (phase.compare_exchange_strong(expected, Phase::kReleased)) return;
    if (expected == Phase::kBegun) End();
  }

  bool ended() const { return phase.load(std::memory_order_acquire) == Phase::kEnded; }
};

class EmulatedWork : public TraceWork {
 public:
  EmulatedWork(const internal::Driver& driver, const Emulator& emulator, const std::vector<CUstream>& streams)
      : driver_(driver), emulator_(emulator), streams_(streams), held_(streams.size()), patience_(streams.size()) {}

  ~EmulatedWork() override {
    ReleaseAll();
    // In a lost context an operation never begins, and the worker does not need it any more.
    for (CUstream stream : streams_) driver_.cuda.cuStreamSynchronize(stream);
    for (std::deque<Operation>& held : held_) {
      for (Operation& operation : held) Patience(2).Wait([&] { return operation.ended(); });
    }
  }

  Status Hold(size_t stream, CUdeviceptr address, uint64_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Operation>& held = held_[stream];
    while (!held.empty() && held.front().ended()) held.pop_front();
    Operation& operation = held.emplace_back();
    operation.emulator = &emulator_;
    const commpoolEmulatorRange written{address, bytes};
    const commpoolEmulatorAccess access{"trace", nullptr, 0, &written, 1, 0};
    Status status =
        internal::CheckCuda(driver_, emulator_.enqueue(streams_[stream], &access, &Operation::Begin, &operation),
                            {.call = "commpoolEmulatorEnqueue", .bytes = bytes, .purpose = "replayed work"});
    if (!status.ok()) held.pop_back();
    return status;
  }

  Status Release(size_t stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Operation>& held = held_[stream];
    for (Operation& operation : held) operation.Release();
    if (!held.empty()) patience_.Wait([&] { return held.back().ended(); });
    // Also waits for the markers that the pool put behind the work, so that what the pool sees depends on no worker's
    // speed.
    return WaitForStream(driver_, streams_[stream], patience_);
  }

  void ReleaseAll() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::deque<Operation>& held : held_) {
      for (Operation& operation : held) operation.Release();
    }
  }

 private:
  const internal::Driver& driver_;
  const Emulator emulator_;
  const std::vector<CUstream> streams_;
  std::mutex mutex_;                         // guards held_
  std::vector<std::deque<Operation>> held_;  // by stream, in its order
  const Patience patience_;
};

}  // namespace

Result<std::unique_ptr<TraceWork>> MakeEmulatedWork(const internal::Driver& driver,
                                                    const std::vector<CUstream>& streams) {
  Emulator emulator;
  emulator.enqueue = reinterpret_cast<decltype(emulator.enqueue)>(driver.extension("commpoolEmulatorEnqueue"));
  emulator.complete = reinterpret_cast<decltype(emulator.complete)>(driver.extension("commpoolEmulatorComplete"));
  emulator.now = reinterpret_cast<decltype(emulator.now)>(driver.extension("commpoolEmulatorNow"));
  if (emulator.enqueue == nullptr || emulator.complete == nullptr || emulator.now == nullptr) {
    return Status(StatusCode::kNotSupported, "this emulator has no operations that the host ends");
  }
  return std::unique_ptr<TraceWork>(std::make_unique<EmulatedWork>(driver, emulator, streams));
}

}  // namespace commpool::cli
