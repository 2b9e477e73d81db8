#include "src/driver/launch.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/driver/diagnosis.h"
#include "src/driver/emulator_symbols.h"

namespace commpool {

namespace {

Status CheckRanges(const std::vector<DeviceRange>& ranges) {
  for (const DeviceRange& range : ranges) {
    if (range.address == 0 || range.bytes == 0) {
      return Status(StatusCode::kInvalidArgument, "launch: an empty range is declared");
    }
  }
  return Status();
}

// On the emulator: a declared operation of the stream.
Status LaunchEmulated(const Driver& driver, EmulatorLaunchFunction launch, CUstream stream,
                      const std::vector<DeviceRange>& reads, const std::vector<DeviceRange>& writes,
                      KernelFunction function) {
  struct Job {
    KernelFunction function;
    size_t reads;
    size_t writes;
  };
  const auto convert = [](const std::vector<DeviceRange>& ranges) {
    std::vector<EmulatorRange> converted;
    for (const DeviceRange& range : ranges) converted.push_back({range.address, range.bytes});
    return converted;
  };
  const std::vector<EmulatorRange> read_ranges = convert(reads);
  const std::vector<EmulatorRange> write_ranges = convert(writes);
  const EmulatorAccess access{
      "launch", read_ranges.data(), read_ranges.size(), write_ranges.data(), write_ranges.size(), 5.0};
  auto job = std::make_unique<Job>(Job{std::move(function), reads.size(), writes.size()});
  const auto kernel = [](void* context, const void* const* read_data, void* const* write_data) {
    const std::unique_ptr<Job> owned(static_cast<Job*>(context));
    // Not in braces: two pointers would be taken for two elements.
    const std::vector<const void*> read_copies(read_data, read_data + owned->reads);
    const std::vector<void*> write_copies(write_data, write_data + owned->writes);
    owned->function(read_copies, write_copies);
  };
  Status status = CheckCuda(driver, launch(stream, &access, kernel, job.get()), {.call = "launch"});
  if (status.ok()) static_cast<void>(job.release());  // the kernel owns it now
  return status;
}

// Pinned host copies of the declared ranges for one launch on a real device. Copies from pageable memory would be taken
// before the function ran.
struct Staging {
  decltype(CudaDriver::cuMemFreeHost) free = nullptr;  // not the Driver: that may be gone when the staging is freed
  KernelFunction function;
  std::vector<void*> reads;
  std::vector<void*> writes;

  ~Staging() {
    for (const std::vector<void*>* copies : {&reads, &writes}) {
      for (void* copy : *copies) free(copy);
    }
  }

  static Status Allocate(const Driver& driver, const std::vector<DeviceRange>& ranges, std::vector<void*>& copies) {
    for (const DeviceRange& range : ranges) {
      void* copy = nullptr;
      Status status = CheckCuda(driver, driver.cuda.cuMemAllocHost(&copy, range.bytes),
                                {.call = "cuMemAllocHost", .bytes = range.bytes, .purpose = "copy of a launch"});
      if (!status.ok()) return status;
      copies.push_back(copy);
    }
    return Status();
  }
};

// A host function may call no CUDA, so what has run is freed by the next launch.
class FinishedStagings {
 public:
  static FinishedStagings& Get() {
    static FinishedStagings* const finished = new FinishedStagings();  // host functions may run until the process ends
    return *finished;
  }
  void Add(std::unique_ptr<Staging> staging) {
    std::lock_guard<std::mutex> lock(mutex_);
    finished_.push_back(std::move(staging));
  }
  std::vector<std::unique_ptr<Staging>> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(finished_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Staging>> finished_;
};

// Copies out, runs, copies back, and marks the staging as finished, in stream order.
Status Enqueue(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
               const std::vector<DeviceRange>& writes, Staging* staging) {
  const CudaDriver& cuda = driver.cuda;
  for (size_t index = 0; index < reads.size(); ++index) {
    const DeviceRange& range = reads[index];
    Status status = CheckCuda(driver, cuda.cuMemcpyDtoHAsync(staging->reads[index], range.address, range.bytes, stream),
                              {.call = "cuMemcpyDtoHAsync", .bytes = range.bytes, .purpose = "launch"});
    if (!status.ok()) return status;
  }
  const auto run = [](void* context) {
    const auto* staged = static_cast<const Staging*>(context);
    staged->function(std::vector<const void*>(staged->reads.begin(), staged->reads.end()), staged->writes);
  };
  Status status = CheckCuda(driver, cuda.cuLaunchHostFunc(stream, run, staging), {.call = "cuLaunchHostFunc"});
  if (!status.ok()) return status;
  for (size_t index = 0; index < writes.size(); ++index) {
    const DeviceRange& range = writes[index];
    status = CheckCuda(driver, cuda.cuMemcpyHtoDAsync(range.address, staging->writes[index], range.bytes, stream),
                       {.call = "cuMemcpyHtoDAsync", .bytes = range.bytes, .purpose = "launch"});
    if (!status.ok()) return status;
  }
  const auto finish = [](void* context) {
    FinishedStagings::Get().Add(std::unique_ptr<Staging>(static_cast<Staging*>(context)));
  };
  return CheckCuda(driver, cuda.cuLaunchHostFunc(stream, finish, staging), {.call = "cuLaunchHostFunc"});
}

Status LaunchStaged(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
                    const std::vector<DeviceRange>& writes, KernelFunction function) {
  FinishedStagings::Get().Take().clear();
  auto staging = std::make_unique<Staging>();
  staging->free = driver.cuda.cuMemFreeHost;
  staging->function = std::move(function);
  Status status = Staging::Allocate(driver, reads, staging->reads);
  if (status.ok()) status = Staging::Allocate(driver, writes, staging->writes);
  if (!status.ok()) return status;
  status = Enqueue(driver, stream, reads, writes, staging.get());
  // The stream owns the staging once all is enqueued. After a failure half-way it is waited for; where even that fails
  // the context is lost, and the copies may still be in use.
  if (status.ok() || driver.cuda.cuStreamSynchronize(stream) != CUDA_SUCCESS) static_cast<void>(staging.release());
  return status;
}

}  // namespace

Status Launch(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
              const std::vector<DeviceRange>& writes, KernelFunction function) {
  for (const std::vector<DeviceRange>* ranges : {&reads, &writes}) {
    Status status = CheckRanges(*ranges);
    if (!status.ok()) return status;
  }
  const auto emulated = reinterpret_cast<EmulatorLaunchFunction>(driver.extension(kEmulatorLaunch));
  if (emulated != nullptr) return LaunchEmulated(driver, emulated, stream, reads, writes, std::move(function));
  return LaunchStaged(driver, stream, reads, writes, std::move(function));
}

}  // namespace commpool
