#include "tools/cli/replay/peers/peer_allocator.h"

#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/emulator/extension.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/shared_library.h"
#include "tools/cli/bench/async_pool.h"
#include "tools/cli/torch_library.h"

namespace commpool::cli {

namespace {

// The driver calls of allocators. The emulator counts all calls of the process; these are counted inside the timed
// calls.
constexpr const char* kAllocatorCalls[] = {
    "cuMemAlloc",      "cuMemFree",         "cuMemAddressReserve", "cuMemAddressFree",        "cuMemCreate",
    "cuMemRelease",    "cuMemMap",          "cuMemUnmap",          "cuMemSetAccess",          "cuEventRecord",
    "cuEventQuery",    "cuStreamWaitEvent", "cuStreamSynchronize", "cuCtxSynchronize",        "cuEventSynchronize",
    "cuMemAllocAsync", "cuMemFreeAsync",    "cuMemGetInfo",        "cuMemAllocFromPoolAsync", "cuEventCreate"};

// The library of tools/bench/build_rmm_allocator.sh: bench_rmm_*.
struct RmmLibrary {
  // `kind`: "pool" or "arena", which takes `bytes` at once. False where there is no memory. A second call begins again.
  bool (*initialise)(const char* kind, size_t bytes) = nullptr;
  // Null for out of memory.
  void* (*allocate)(size_t bytes, void* stream) = nullptr;
  void (*free)(void* block, size_t bytes, void* stream) = nullptr;
  void (*finish)() = nullptr;
  // Calls and time of cudaMalloc and cudaFree since the library was opened.
  void (*upstream)(uint64_t* calls, double* microseconds) = nullptr;

  // kNotFound where the file cannot be opened or lacks one of the functions.
  static Result<RmmLibrary> Open(const std::string& file);
};

Result<RmmLibrary> RmmLibrary::Open(const std::string& file) {
  internal::SharedLibrary library = COMMPOOL_TRY(internal::SharedLibrary::Open(file));
  RmmLibrary rmm;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.Symbol(name));
    complete = complete && function != nullptr;
  };
  find(rmm.initialise, "bench_rmm_initialise");
  find(rmm.allocate, "bench_rmm_allocate");
  find(rmm.free, "bench_rmm_free");
  find(rmm.finish, "bench_rmm_finish");
  find(rmm.upstream, "bench_rmm_upstream");
  if (complete) return rmm;
  return Status(StatusCode::kNotFound, file + " is not what tools/bench/build_rmm_allocator.sh builds");
}

class TorchPeer : public PeerAllocator {
 public:
  TorchPeer(SoloDevice& device, const TorchLibrary& torch) : PeerAllocator(device), torch_(torch) {}
  ~TorchPeer() override { torch_.empty_cache(); }

 private:
  void* Serve(uint64_t bytes, CUstream stream) override { return torch_.allocate(bytes, stream); }
  void TakeBack(void* block) override { torch_.free(block); }
  Status AlsoUse(void* block, CUstream stream) override { return torch_.record_stream(block, stream), Status(); }
  bool sees_driver() const override { return false; }

  const TorchLibrary torch_;
};

// For allocators that know only a block's own stream. A user on another stream makes the block's own stream wait before
// the free, as programs with these allocators must.
class OneStreamPeer : public PeerAllocator {
 public:
  explicit OneStreamPeer(SoloDevice& device) : PeerAllocator(device) {}

 protected:
  struct Block {
    uint64_t bytes = 0;
    CUstream stream = nullptr;
    std::vector<CUstream> also;
  };

  virtual void* ServeOn(uint64_t bytes, CUstream stream) = 0;
  virtual void TakeBackOn(void* block, const Block& known) = 0;

 private:
  void* Serve(uint64_t bytes, CUstream stream) override {
    void* const block = ServeOn(bytes, stream);
    if (block != nullptr) blocks_[block] = {bytes, stream, {}};
    return block;
  }
  void TakeBack(void* block) override {
    const auto node = blocks_.extract(block);
    const internal::CudaDriver& cuda = device().driver().cuda;
    for (const CUstream stream : node.mapped().also) {
      CUevent event = nullptr;
      if (cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) continue;
      if (cuda.cuEventRecord(event, stream) == CUDA_SUCCESS) cuda.cuStreamWaitEvent(node.mapped().stream, event, 0);
      cuda.cuEventDestroy(event);
    }
    TakeBackOn(block, node.mapped());
  }
  Status AlsoUse(void* block, CUstream stream) override {
    blocks_.at(block).also.push_back(stream);
    return Status();
  }

  std::unordered_map<void*, Block> blocks_;
};

class RmmPeer : public OneStreamPeer {
 public:
  RmmPeer(SoloDevice& device, const RmmLibrary& rmm) : OneStreamPeer(device), rmm_(rmm) {}
  ~RmmPeer() override { rmm_.finish(); }

 private:
  void* ServeOn(uint64_t bytes, CUstream stream) override { return rmm_.allocate(bytes, stream); }
  void TakeBackOn(void* block, const Block& known) override { rmm_.free(block, known.bytes, known.stream); }
  DriverCalls DriverSoFar() const override {
    DriverCalls calls;
    rmm_.upstream(&calls.count, &calls.microseconds);
    return calls;
  }

  const RmmLibrary rmm_;
};

// cudaMallocAsync: each call is a driver call.
class AsyncPeer : public OneStreamPeer {
 public:
  AsyncPeer(SoloDevice& device, AsyncPool pool) : OneStreamPeer(device), pool_(std::move(pool)) {}

 private:
  void* ServeOn(uint64_t bytes, CUstream stream) override {
    ++calls_.count;
    return pool_.Allocate(bytes, stream);
  }
  void TakeBackOn(void* block, const Block& known) override {
    ++calls_.count;
    pool_.Free(block, known.stream);
  }
  DriverCalls DriverSoFar() const override { return calls_; }

  const AsyncPool pool_;
  DriverCalls calls_;
};

}  // namespace

PeerAllocator::PeerAllocator(SoloDevice& device) : device_(device) {
  const internal::Driver& driver = device.driver();
  count_ = reinterpret_cast<decltype(count_)>(driver.extension("commpoolEmulatorCallCount"));
  now_ = reinterpret_cast<decltype(now_)>(driver.extension("commpoolEmulatorNow"));
}

DriverCalls PeerAllocator::EmulatedSoFar() const {
  DriverCalls calls{.microseconds = now_()};
  for (const char* const name : kAllocatorCalls) calls.count += count_(name);
  return calls;
}

template <typename Call>
void PeerAllocator::Watch(Call&& call) {
  if (count_ == nullptr) {
    call();
    seen_ = DriverSoFar();
    return;
  }
  const DriverCalls before = EmulatedSoFar();
  call();
  const DriverCalls after = EmulatedSoFar();
  seen_.count += after.count - before.count;
  seen_.microseconds += after.microseconds - before.microseconds;
}

void* PeerAllocator::Allocate(uint64_t bytes, CUstream stream) {
  void* block = nullptr;
  Watch([&] { block = Serve(bytes, stream); });
  return block;
}

bool PeerAllocator::Free(void* block) {
  Watch([&] { TakeBack(block); });
  return true;
}

bool PeerAllocator::RecordStream(void* block, CUstream stream) {
  Status status;
  Watch([&] { status = AlsoUse(block, stream); });
  return status.ok();
}

bool PeerAllocator::CalledDriver(uint64_t ns) {
  if (count_ == nullptr && !sees_driver()) return ns > kDriverNs;
  return std::exchange(told_, seen_.count) != seen_.count;
}

DriverCallsByName PeerAllocator::Calls() const {
  if (seen_.count == 0) return {};
  return {{"all", seen_}};
}

Result<std::unique_ptr<PeerAllocator>> PeerAllocator::Open(SoloDevice& device, const PeerOptions& options,
                                                           uint64_t arena_bytes) {
  using Peer = std::unique_ptr<PeerAllocator>;
  if (options.as == kCudaAsync) {
    AsyncPool pool = COMMPOOL_TRY(AsyncPool::Create(device.driver(), UINT64_MAX));
    return Peer(std::make_unique<AsyncPeer>(device, std::move(pool)));
  }
  if (options.as == kTorchNative || options.as == kTorchExpandable) {
    TorchLibrary torch = COMMPOOL_TRY(TorchLibrary::Open(options.torch_library));
    return Peer(std::make_unique<TorchPeer>(device, torch));
  }
  RmmLibrary rmm = COMMPOOL_TRY(RmmLibrary::Open(options.rmm_library));
  const bool arena = options.as == kRmmArena;
  if (!rmm.initialise(arena ? "arena" : "pool", arena ? arena_bytes : 0)) {
    return Status(StatusCode::kOutOfMemory, options.as + " cannot be made");
  }
  return Peer(std::make_unique<RmmPeer>(device, rmm));
}

Result<ReplayMeasures> ReplayInPeer(SoloDevice& device, const Trace& trace, const PeerOptions& options) {
  constexpr uint64_t kArenaPercents[] = {101, 103, 106, 110, 115, 122, 130, 145, 165, 200, 300};
  Result<ReplayMeasures> measures = Status(StatusCode::kOutOfMemory, "no size was tried");
  for (const uint64_t percent : kArenaPercents) {
    const uint64_t bytes = internal::RoundUp(trace.peak_requested_bytes / 100 * percent, MiB(2));
    std::unique_ptr<PeerAllocator> allocator = COMMPOOL_TRY(PeerAllocator::Open(device, options, bytes));
    measures = Replay(device, trace, *allocator);
    // The arena had its memory before the first event.
    if (measures.ok() && options.as == kRmmArena) measures->peak_reserved_bytes = bytes;
    if (options.as != kRmmArena || measures.status().code() != StatusCode::kOutOfMemory) return measures;
  }
  return measures;
}

}  // namespace commpool::cli
