// Tells the emulator.
#include <cstring>

#include "src/emulator/extension.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

namespace {

// The functions that the emulator exports for this. All are there, or it is an older emulator and some are null.
struct Functions {
  decltype(&commpoolEmulatorBlockAllocated) block_allocated = nullptr;
  decltype(&commpoolEmulatorBlockFreed) block_freed = nullptr;
  decltype(&commpoolEmulatorBlockRecorded) block_recorded = nullptr;
  decltype(&commpoolEmulatorSegmentSleeps) segment_sleeps = nullptr;
  decltype(&commpoolEmulatorStreamReleased) stream_released = nullptr;
  decltype(&commpoolEmulatorCaptureAnnounced) capture_announced = nullptr;
  decltype(&commpoolEmulatorSetting) setting = nullptr;
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
  Find(driver, "commpoolEmulatorBlockAllocated", &functions.block_allocated);
  Find(driver, "commpoolEmulatorBlockFreed", &functions.block_freed);
  Find(driver, "commpoolEmulatorBlockRecorded", &functions.block_recorded);
  Find(driver, "commpoolEmulatorSegmentSleeps", &functions.segment_sleeps);
  Find(driver, "commpoolEmulatorStreamReleased", &functions.stream_released);
  Find(driver, "commpoolEmulatorCaptureAnnounced", &functions.capture_announced);
  Find(driver, "commpoolEmulatorSetting", &functions.setting);
  if (functions.setting == nullptr && functions.stream_released == nullptr) return nullptr;
  return std::make_unique<EmulatorObserver>(functions);
}

}  // namespace commpool::internal
