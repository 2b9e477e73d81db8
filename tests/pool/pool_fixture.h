// Shared by the tests of pools: a runtime for each test, pools by their configuration, and work on streams.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/runtime.h"
#include "tests/driver/emulator_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {

// A stream that does not wait for the legacy stream. Made in the current context, promised to the test's runtime, and
// released in the end.
class TestStream {
 public:
  TestStream();
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  CUstream get() const { return stream_; }
  operator CUstream() const { return stream_; }
  // Destroys the stream without telling the pools.
  void DestroyUnreleased();
  StreamKey key() const { return KeyOfStream(stream_, 0); }

 private:
  CUstream stream_ = nullptr;
};

// Work on a stream. Both return before it has run.
void Fill(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value);
// Adds the number of bytes that differ from `value` to `*wrong`, which must outlive the stream's work.
void Compare(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value, uint64_t* wrong);

// Runs work(0), work(1) and so on, each on a thread of its own, and waits for them.
template <typename Work>
void OnThreads(int count, const Work& work) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
}

// What a case says of a pool.
struct PoolOptions {
  const char* name = "pool";
  BackingKind kind = BackingKind::kVmm;
  int device = 0;
  Mode mode = Mode::kFixed;
  Streams streams = Streams::kOutlive;
  uint64_t deadline_ms = PoolConfiguration().deadline_ms;
  std::vector<int> peers = {};
  uint64_t segment_bytes = 0;
  uint64_t release_threshold_bytes = UINT64_MAX;
  uint64_t limit_bytes = UINT64_MAX;
};

// Makes device 0 current. At its end it frees the blocks that the test has left live, of which there may be no more
// than it was served and has not freed, and looks at each pool's invariants; then everything that pools still hold goes
// back to the driver, and the pools are destroyed.
class PoolTest : public DriverTest {
 protected:
  explicit PoolTest(std::shared_ptr<const Driver> driver = SharedDriver());
  ~PoolTest() override;
  // A fixture that overrides it calls it first.
  void TearDown() override;

  Runtime& runtime() { return *runtime_; }
  void EndRuntime();
  // Ends the test's runtime and begins another.
  void RestartRuntime(Settings settings);
  const CudaDriver& cuda() const { return driver().cuda; }
  // Of device 0, for other threads to make current.
  const PrimaryContext& context() const { return context_; }

  static PoolConfiguration Configured(const char* name, int device = 0);
  static PoolConfiguration ConfiguredWith(const PoolOptions& options);
  PoolHandle Create(PoolConfiguration configuration) { return runtime().CreatePool(std::move(configuration)).value(); }
  PoolHandle CreateWith(const PoolOptions& options) { return Create(ConfiguredWith(options)); }
  Pool& Get(PoolHandle handle) { return *runtime().pools().Find(handle).value(); }
  void Destroy(PoolHandle pool, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectOk(runtime().DestroyPool(pool), file, line);
  }
  Result<CUdeviceptr> TryAllocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    Result<CUdeviceptr> block = runtime().AllocateFrom(pool, bytes, stream);
    Counted(block.ok() ? *block : 0);
    return block;
  }
  // Counts a block, if it is one, as served: by a call that is none of these here.
  CUdeviceptr Counted(CUdeviceptr block) {
    if (block != 0) served_.fetch_add(1, std::memory_order_relaxed);
    return block;
  }
  // 0 where it fails, which it must not.
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
  void Free(CUdeviceptr block, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    served_.fetch_sub(1, std::memory_order_relaxed);
    ExpectOk(runtime().Free(block), file, line);
  }
  void FreeAll(const std::vector<CUdeviceptr>& blocks, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
    for (const CUdeviceptr block : blocks) Free(block, file, line);
  }
  void Synchronize() { EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS); }
  void Synchronize(CUstream stream) { EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS); }
  // Waits until it has compared.
  void ExpectBytes(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE());
  // One that the pools were told nothing of. The test destroys it.
  CUstream NewStream(CUstream_flags flags = CU_STREAM_NON_BLOCKING);
  void DestroyStream(CUstream stream) { EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS); }
  // Ends a stream's capture, whose graph nobody runs.
  void EndAndDropGraph(CUstream stream);
  commpool_statistics CountersOf(PoolHandle handle) { return Get(handle).Statistics(); }
  uint64_t Reserved(PoolHandle pool) { return CountersOf(pool).reserved_bytes.current; }
  // CU_MEM_ACCESS_FLAGS of a device to the memory.
  unsigned long long AccessOf(int device, CUdeviceptr address);

 private:
  PrimaryContext context_;
  ContextGuard current_;
  std::unique_ptr<Runtime> runtime_;
  std::atomic<int64_t> served_{0};  // and not freed; relaxed, so that it orders no threads that a test lets race
};

// For pools that behave alike in both modes.
class PoolTestInEachMode : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  static PoolConfiguration InMode(const char* name, int device = 0) {
    return ConfiguredWith({.name = name, .device = device, .mode = GetParam()});
  }
};
inline auto EachMode() { return ::testing::Values(Mode::kFixed, Mode::kExpandable); }
inline std::string NameOfMode(const ::testing::TestParamInfo<Mode>& mode) {
  return mode.param == Mode::kFixed ? "Fixed" : "Expandable";
}

}  // namespace commpool::internal::testing
