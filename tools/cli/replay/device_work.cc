#include <atomic>
#include <mutex>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/replay/patience.h"
#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

namespace {

class DeviceWork : public TraceWork {
 public:
  using Flag = std::atomic<uint32_t>;
  static_assert(sizeof(Flag) == sizeof(uint32_t) && Flag::is_always_lock_free, "the GPU reads it as a word");

  // `flags` is pinned memory with a word for each stream.
  DeviceWork(const internal::Driver& driver, Flag* flags, const std::vector<CUstream>& streams)
      : driver_(driver), flags_(flags), streams_(streams), submitted_(streams.size(), 0), patience_(streams.size()) {}

  ~DeviceWork() override {
    ReleaseAll();
    for (CUstream stream : streams_) driver_.cuda.cuStreamSynchronize(stream);
    driver_.cuda.cuMemFreeHost(flags_);
  }

  Status Hold(size_t stream, CUdeviceptr address, uint64_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t used = bytes < kUsedBytes ? bytes : kUsedBytes;
    COMMPOOL_TRY(internal::CheckCuda(driver_, driver_.cuda.cuMemsetD8Async(address, 1, used, streams_[stream]),
                                     {.call = "cuMemsetD8Async", .bytes = used, .purpose = "replayed work"}));
    // Pinned memory has one address on host and device.
    const auto flag = reinterpret_cast<CUdeviceptr>(&flags_[stream]);
    Status status = internal::CheckCuda(
        driver_,
        driver_.cuda.cuStreamWaitValue32(streams_[stream], flag, submitted_[stream] + 1, CU_STREAM_WAIT_VALUE_GEQ),
        {.call = "cuStreamWaitValue32", .purpose = "replayed work"});
    if (status.ok()) ++submitted_[stream];
    return status;
  }

  Status Release(size_t stream) override {
    LetEnd(stream);
    return WaitForStream(driver_, streams_[stream], patience_);
  }

  void ReleaseAll() override {
    for (size_t stream = 0; stream < streams_.size(); ++stream) LetEnd(stream);
  }

 private:
  void LetEnd(size_t stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    flags_[stream].store(submitted_[stream]);
  }

  static constexpr uint64_t kUsedBytes = 512;

  const internal::Driver& driver_;
  Flag* const flags_;
  const std::vector<CUstream> streams_;
  std::mutex mutex_;                 // guards submitted_, and that flags only rise
  std::vector<uint32_t> submitted_;  // by stream: how much work was submitted
  const Patience patience_;
};

}  // namespace

Result<std::unique_ptr<TraceWork>> MakeDeviceWork(const internal::Driver& driver,
                                                  const std::vector<CUstream>& streams) {
  void* words = nullptr;
  const size_t bytes = streams.size() * sizeof(DeviceWork::Flag);
  COMMPOOL_TRY(internal::CheckCuda(driver, driver.cuda.cuMemAllocHost(&words, bytes),
                                   {.call = "cuMemAllocHost", .bytes = bytes, .purpose = "flags of replayed work"}));
  auto* const flags = static_cast<DeviceWork::Flag*>(words);
  for (size_t stream = 0; stream < streams.size(); ++stream) new (&flags[stream]) DeviceWork::Flag(0);
  return std::unique_ptr<TraceWork>(std::make_unique<DeviceWork>(driver, flags, streams));
}

Result<std::unique_ptr<TraceWork>> MakeTraceWork(const internal::Driver& driver, const std::vector<CUstream>& streams) {
  return driver.kind == internal::DriverChoice::kEmulated ? MakeEmulatedWork(driver, streams)
                                                          : MakeDeviceWork(driver, streams);
}

}  // namespace commpool::cli
