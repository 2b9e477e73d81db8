#include "src/driver/launch.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/driver/diagnosis.h"
#include "src/driver/emulator_symbols.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

namespace {

Status CheckRanges(const std::vector<DeviceRange>& ranges) {
  for (const DeviceRange& range : ranges) {
    if (range.address == 0 || range.bytes == 0) {
      return Status(StatusCode::kInvalidArgument, "launch: an empty range is declared");
    }
  }
  return Status();
}

// `end(owned)` runs when the graph is gone; soon where this fails.
Status GiveToGraph(const Driver& driver, CUgraph graph, CUhostFn end, void* owned) {
  Result<UserObject> object = UserObject::Create(driver, end, owned);
  if (object.ok()) return object->MoveTo(graph);
  end(owned);
  return object.status();
}

// On the emulator: a declared operation of the stream.
Status LaunchEmulated(const Driver& driver, EmulatorLaunchFunction launch, CUstream stream,
                      const std::vector<DeviceRange>& reads, const std::vector<DeviceRange>& writes,
                      KernelFunction function) {
  struct Job {
    KernelFunction function;
    size_t reads;
    size_t writes;
    bool captured;  // the graph owns it, and it runs at each replay
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
  const Result<CUgraph> graph = GraphInCapture(driver, stream);
  if (!graph.ok()) return graph.status();
  auto job = std::make_unique<Job>(Job{std::move(function), reads.size(), writes.size(), *graph != nullptr});
  const auto kernel = [](void* context, const void* const* read_data, void* const* write_data) {
    auto* const running = static_cast<Job*>(context);
    const std::unique_ptr<Job> owned(running->captured ? nullptr : running);
    // Not in braces: two pointers would be taken for two elements.
    const std::vector<const void*> read_copies(read_data, read_data + running->reads);
    const std::vector<void*> write_copies(write_data, write_data + running->writes);
    running->function(read_copies, write_copies);
  };
  if (*graph != nullptr) {
    Job* const captured = job.release();
    const auto end = [](void* context) { delete static_cast<Job*>(context); };
    Status status = GiveToGraph(driver, *graph, end, captured);
    return status.ok() ? CheckCuda(driver, launch(stream, &access, kernel, captured), {.call = "launch"}) : status;
  }
  Status status = CheckCuda(driver, launch(stream, &access, kernel, job.get()), {.call = "launch"});
  if (status.ok()) static_cast<void>(job.release());  // the kernel owns it now
  return status;
}

// Pinned host copies of the declared ranges for one launch on a real device. Copies from pageable memory would be taken
// before the function ran.
struct Staging {
  CudaDriver cuda;              // not the Driver: that may be gone when the staging is freed
  CUcontext context = nullptr;  // which the copies belong to; another one may be current by then
  KernelFunction function;
  std::vector<void*> reads;
  std::vector<void*> writes;

  ~Staging() {
    CUcontext current = nullptr;
    if (cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return;  // the driver has shut down
    cuda.cuCtxSetCurrent(context);
    for (const std::vector<void*>* copies : {&reads, &writes}) {
      for (void* copy : *copies) cuda.cuMemFreeHost(copy);
    }
    cuda.cuCtxSetCurrent(current);
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

// A host function may call no CUDA, so what has run is freed by the next launch, and the last at exit.
class FinishedStagings {
 public:
  static FinishedStagings& Get() {
    static FinishedStagings* const finished = Make();
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
  static FinishedStagings* Make() {
    // The driver was loaded before the first launch, so it shuts down after this function.
    std::atexit(FreeFinishedLaunches);
    return new FinishedStagings();  // not destroyed: host functions may run until the process ends
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Staging>> finished_;
};

void Finish(void* staging) { FinishedStagings::Get().Add(std::unique_ptr<Staging>(static_cast<Staging*>(staging))); }

// Copies out, runs and copies back, in stream order.
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
  return status;
}

Status LaunchStaged(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
                    const std::vector<DeviceRange>& writes, KernelFunction function) {
  const Result<CUgraph> graph = GraphInCapture(driver, stream);
  if (!graph.ok()) return graph.status();
  const RelaxedCapture relaxed(driver);  // a replay uses the same copies
  FinishedStagings::Get().Take().clear();
  auto staging = std::make_unique<Staging>();
  staging->cuda = driver.cuda;
  Status status = CheckCuda(driver, driver.cuda.cuCtxGetCurrent(&staging->context), {.call = "cuCtxGetCurrent"});
  if (!status.ok()) return status;
  staging->function = std::move(function);
  status = Staging::Allocate(driver, reads, staging->reads);
  if (status.ok()) status = Staging::Allocate(driver, writes, staging->writes);
  if (!status.ok()) return status;
  if (*graph != nullptr) {
    Staging* const captured = staging.release();
    status = GiveToGraph(driver, *graph, &Finish, captured);
    return status.ok() ? Enqueue(driver, stream, reads, writes, captured) : status;
  }
  status = Enqueue(driver, stream, reads, writes, staging.get());
  if (status.ok()) {
    status =
        CheckCuda(driver, driver.cuda.cuLaunchHostFunc(stream, &Finish, staging.get()), {.call = "cuLaunchHostFunc"});
  }
  // The stream owns the staging once all is enqueued. After a failure half-way it is waited for; where even that fails
  // the context is lost, and the copies may still be in use.
  if (status.ok() || driver.cuda.cuStreamSynchronize(stream) != CUDA_SUCCESS) static_cast<void>(staging.release());
  return status;
}

}  // namespace

void FreeFinishedLaunches() { FinishedStagings::Get().Take().clear(); }

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

}  // namespace commpool::internal
