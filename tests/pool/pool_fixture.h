// Shared by the tests of pools: a runtime for each test, pools by their configuration, and work on streams.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/runtime.h"
#include "tests/driver/emulator_fixture.h"

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

// Makes device 0 current. A test must free its blocks: in the end everything that pools still hold goes back to the
// driver.
class PoolTest : public DriverTest {
 protected:
  PoolTest();
  ~PoolTest() override;

  Runtime& runtime() { return *runtime_; }
  void EndRuntime();
  const CudaDriver& cuda() const { return driver().cuda; }

  static PoolConfiguration Configured(const char* name, int device = 0);
  PoolHandle Create(PoolConfiguration configuration) { return runtime().CreatePool(std::move(configuration)).value(); }
  Pool& Get(PoolHandle handle) { return *runtime().pools().Find(handle).value(); }
  void Free(CUdeviceptr block) { ExpectOk(runtime().Free(block)); }
  void Synchronize() { EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS); }
  // Waits until it has compared.
  void ExpectBytes(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value);
  // One that the pools were told nothing of. The test destroys it.
  CUstream NewStream();
  // Ends a stream's capture, whose graph nobody runs.
  void EndAndDropGraph(CUstream stream);
  commpool_statistics CountersOf(PoolHandle handle) { return Get(handle).Statistics(); }

 private:
  PrimaryContext context_;
  ContextGuard current_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace commpool::internal::testing
