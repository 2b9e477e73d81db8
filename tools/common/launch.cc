#include "tools/common/launch.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

// `end(owned)` runs when the graph is gone; where this fails, soon.
Status GiveToGraph(const Driver& driver, CUgraph graph, CUhostFn end, void* owned) {
  Result<UserObject> object = UserObject::Create(driver, end, owned);
  if (object.ok()) return object->MoveTo(graph);
  end(owned);
  return object.status();
}

// On the emulator: an operation of the stream with declared ranges.
Status LaunchEmulated(const Driver& driver, decltype(&commpoolEmulatorLaunch) launch, CUstream stream,
                      const std::vector<DeviceRange>& reads, const std::vector<DeviceRange>& writes,
                      KernelFunction function) {
  struct Job {
    KernelFunction function;
    size_t reads;
    size_t writes;
    bool captured;  // then the graph owns it, and each replay runs it
  };
  const commpoolEmulatorAccess access{"launch", reads.data(), reads.size(), writes.data(), writes.size(), 5.0};
  const CUgraph graph = COMMPOOL_TRY(GraphInCapture(driver, stream));
  auto job = std::make_unique<Job>(Job{std::move(function), reads.size(), writes.size(), graph != nullptr});
  const auto kernel = [](void* context, const void* const* read_data, void* const* write_data) {
    auto* const running = static_cast<Job*>(context);
    const std::unique_ptr<Job> owned(running->captured ? nullptr : running);
    // No braces: they would make a list of the two pointers.
    const std::vector<const void*> read_copies(read_data, read_data + running->reads);
    const std::vector<void*> write_copies(write_data, write_data + running->writes);
    running->function(read_copies, write_copies);
  };
  Job* const launched = job.get();
  if (graph != nullptr) {
    const auto end = [](void* context) { delete static_cast<Job*>(context); };
    COMMPOOL_TRY(GiveToGraph(driver, graph, end, job.release()));
  }
  COMMPOOL_TRY(CheckCuda(driver, launch(stream, &access, kernel, launched), {.call = "launch"}));
  static_cast<void>(job.release());  // the operation owns it now
  return Status();
}

// Pinned host copies of the declared ranges for one launch on a real device. Copies from pageable memory would be made
// before the function runs.
struct Staging {
  CudaDriver cuda;              // not the Driver, which may be gone when the staging is freed
  CUcontext context = nullptr;  // the context of the copies; another one may be current later
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
      COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuMemAllocHost(&copy, range.bytes),
                             {.call = "cuMemAllocHost", .bytes = range.bytes, .purpose = "copy of a launch"}));
      copies.push_back(copy);
    }
    return Status();
  }
};

// A host function may call no CUDA. So the next launch frees what has run, and the exit frees the last.
struct FinishedStagings {
  static FinishedStagings& Get() {
    // Never destroyed: host functions may run until the process ends. The driver was loaded before the first launch, so
    // it shuts down after this function.
    static auto* const finished = (std::atexit(FreeFinishedLaunches), new FinishedStagings());
    return *finished;
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Staging>> stagings;
};

void Finish(void* staging) {
  FinishedStagings& finished = FinishedStagings::Get();
  std::lock_guard<std::mutex> lock(finished.mutex);
  finished.stagings.emplace_back(static_cast<Staging*>(staging));
}

// Copies out, runs the function and copies back, in stream order.
Status Enqueue(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
               const std::vector<DeviceRange>& writes, Staging* staging) {
  const CudaDriver& cuda = driver.cuda;
  for (size_t index = 0; index < reads.size(); ++index) {
    const DeviceRange& range = reads[index];
    COMMPOOL_TRY(CheckCuda(driver, cuda.cuMemcpyDtoHAsync(staging->reads[index], range.address, range.bytes, stream),
                           {.call = "cuMemcpyDtoHAsync", .bytes = range.bytes, .purpose = "launch"}));
  }
  const auto run = [](void* context) {
    const auto* staged = static_cast<const Staging*>(context);
    staged->function(std::vector<const void*>(staged->reads.begin(), staged->reads.end()), staged->writes);
  };
  COMMPOOL_TRY(CheckCuda(driver, cuda.cuLaunchHostFunc(stream, run, staging), {.call = "cuLaunchHostFunc"}));
  for (size_t index = 0; index < writes.size(); ++index) {
    const DeviceRange& range = writes[index];
    COMMPOOL_TRY(CheckCuda(driver, cuda.cuMemcpyHtoDAsync(range.address, staging->writes[index], range.bytes, stream),
                           {.call = "cuMemcpyHtoDAsync", .bytes = range.bytes, .purpose = "launch"}));
  }
  return Status();
}

Status LaunchStaged(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
                    const std::vector<DeviceRange>& writes, KernelFunction function) {
  const CUgraph graph = COMMPOOL_TRY(GraphInCapture(driver, stream));
  const RelaxedCapture relaxed(driver);  // a replay uses the same copies
  FreeFinishedLaunches();
  auto staging = std::make_unique<Staging>();
  staging->cuda = driver.cuda;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuCtxGetCurrent(&staging->context), {.call = "cuCtxGetCurrent"}));
  staging->function = std::move(function);
  COMMPOOL_TRY(Staging::Allocate(driver, reads, staging->reads));
  COMMPOOL_TRY(Staging::Allocate(driver, writes, staging->writes));
  if (graph != nullptr) {
    Staging* const captured = staging.release();
    COMMPOOL_TRY(GiveToGraph(driver, graph, &Finish, captured));
    return Enqueue(driver, stream, reads, writes, captured);
  }
  Status status = Enqueue(driver, stream, reads, writes, staging.get());
  if (status.ok()) {
    status =
        CheckCuda(driver, driver.cuda.cuLaunchHostFunc(stream, &Finish, staging.get()), {.call = "cuLaunchHostFunc"});
  }
  // Once everything is enqueued the stream owns the staging. After a failure half-way, wait for the stream; where even
  // that fails the context is lost, and copies may still use the staging.
  if (status.ok() || driver.cuda.cuStreamSynchronize(stream) != CUDA_SUCCESS) static_cast<void>(staging.release());
  return status;
}

}  // namespace

void FreeFinishedLaunches() {
  FinishedStagings& finished = FinishedStagings::Get();
  std::vector<std::unique_ptr<Staging>> gone;  // freed outside the lock
  std::lock_guard<std::mutex> lock(finished.mutex);
  gone.swap(finished.stagings);
}

Status Launch(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
              const std::vector<DeviceRange>& writes, KernelFunction function) {
  for (const std::vector<DeviceRange>* ranges : {&reads, &writes}) {
    for (const DeviceRange& range : *ranges) {
      if (range.address != 0 && range.bytes != 0) continue;
      return Status(StatusCode::kInvalidArgument, "launch: an empty range is declared");
    }
  }
  const auto emulated = reinterpret_cast<decltype(&commpoolEmulatorLaunch)>(driver.extension("commpoolEmulatorLaunch"));
  if (emulated != nullptr) return LaunchEmulated(driver, emulated, stream, reads, writes, std::move(function));
  return LaunchStaged(driver, stream, reads, writes, std::move(function));
}

}  // namespace commpool::internal
