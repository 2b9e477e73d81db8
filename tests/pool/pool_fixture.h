// What the tests of pools share: a runtime of their own, pools by their configuration, and work on streams.
#ifndef COMMPOOL_TESTS_POOL_POOL_FIXTURE_H_
#define COMMPOOL_TESTS_POOL_POOL_FIXTURE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/bytes.h"
#include "src/driver/handles.h"
#include "src/pool/runtime.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

// A stream that does not wait for the legacy one. Made in the current context; promised to the test's runtime, and
// released.
class TestStream {
 public:
  TestStream();
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  CUstream get() const { return stream_; }
  // The pools are not told.
  void DestroyUnreleased();
  StreamKey key() const { return KeyOfStream(stream_); }

 private:
  CUstream stream_ = nullptr;
};

// Work on a stream: both return before it ran.
void Fill(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value);
// Counts the bytes that differ from `value` into `*wrong`, which must outlive the stream's work.
void Compare(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value, uint64_t* wrong);

// Device 0 is current. What a test made must be freed at its end: what the pools still hold then is given back.
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
  commpool_statistics CountersOf(PoolHandle handle) { return Get(handle).Statistics(); }

 private:
  PrimaryContext context_;
  ContextGuard current_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_POOL_POOL_FIXTURE_H_
