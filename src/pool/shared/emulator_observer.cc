// Tells the emulator.
#include <cstring>

#include "src/driver/emulator_symbols.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

namespace {

// The functions that the emulator exports for this. All are there, or it is an older emulator and some are null.
struct Functions {
  void (*block_allocated)(CUdeviceptr address, size_t bytes, CUstream stream, const char* pool) = nullptr;
  void (*block_freed)(CUdeviceptr address) = nullptr;
  void (*block_recorded)(CUdeviceptr address, CUstream stream) = nullptr;
  void (*segment_sleeps)(CUdeviceptr address, size_t bytes, int asleep) = nullptr;
  void (*stream_released)(CUstream stream) = nullptr;
  void (*capture_announced)(CUstream stream, int announced) = nullptr;
  const char* (*setting)(const char* key) = nullptr;
};

template <typename Function>
void Find(const Driver& driver, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(driver.extension(name));
}

class EmulatorObserver final : public MemoryObserver {
 public:
  explicit EmulatorObserver(const Functions& functions) : functions_(functions) {
    const char* const races = functions.setting == nullptr ? nullptr : functions.setting("races");
    watches_blocks_ = races != nullptr && std::strcmp(races, "yes") == 0 && functions.block_allocated != nullptr &&
                      functions.block_freed != nullptr && functions.block_recorded != nullptr;
  }

  bool watches_blocks() const override { return watches_blocks_; }

  void SegmentSleeps(const engine::SegmentRange& segment) override { TellSleep(segment, 1); }
  void SegmentAwake(const engine::SegmentRange& segment) override { TellSleep(segment, 0); }

  void BlockAllocated(const engine::SegmentRange& block, StreamKey stream, const std::string& pool) override {
    if (!watches_blocks_ || !IsReachable(stream)) return;
    functions_.block_allocated(block.address, block.bytes, StreamOfKey(stream), pool.c_str());
  }

  void BlockFreed(CUdeviceptr address) override {
    if (watches_blocks_) functions_.block_freed(address);
  }

  void BlockRecorded(CUdeviceptr address, StreamKey stream) override {
    if (watches_blocks_ && IsReachable(stream)) functions_.block_recorded(address, StreamOfKey(stream));
  }

  void StreamReleased(CUstream stream) override {
    if (functions_.stream_released != nullptr) functions_.stream_released(stream);
  }

  void CaptureBegun(CUstream stream) override { TellCapture(stream, 1); }
  void CaptureEnded(CUstream stream) override { TellCapture(stream, 0); }

 private:
  void TellSleep(const engine::SegmentRange& segment, int asleep) {
    if (functions_.segment_sleeps != nullptr) functions_.segment_sleeps(segment.address, segment.bytes, asleep);
  }
  void TellCapture(CUstream stream, int announced) {
    if (functions_.capture_announced != nullptr) functions_.capture_announced(stream, announced);
  }

  const Functions functions_;
  bool watches_blocks_ = false;
};

}  // namespace

std::unique_ptr<MemoryObserver> MakeEmulatorObserver(const Driver& driver) {
  Functions functions;
  Find(driver, kEmulatorBlockAllocated, &functions.block_allocated);
  Find(driver, kEmulatorBlockFreed, &functions.block_freed);
  Find(driver, kEmulatorBlockRecorded, &functions.block_recorded);
  Find(driver, kEmulatorSegmentSleeps, &functions.segment_sleeps);
  Find(driver, kEmulatorStreamReleased, &functions.stream_released);
  Find(driver, kEmulatorCaptureAnnounced, &functions.capture_announced);
  Find(driver, kEmulatorSetting, &functions.setting);
  if (functions.setting == nullptr && functions.stream_released == nullptr) return nullptr;
  return std::make_unique<EmulatorObserver>(functions);
}

}  // namespace commpool::internal
