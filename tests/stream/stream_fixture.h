// Shared by tests of streams: a device's context that is current, and streams, each until its scope ends.
#pragma once

#include <utility>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

class CurrentContext {
 public:
  explicit CurrentContext(int device = 0) : context_(PrimaryContext::Retain(*SharedDriver(), device).value()) {}
  operator const PrimaryContext&() const { return context_; }
  CUcontext get() const { return context_.get(); }

 private:
  PrimaryContext context_;
  ContextGuard guard_{*SharedDriver(), context_};
};

// A stream of the context that is current, and of that device.
class TestStream {
 public:
  explicit TestStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream_, flags), CUDA_SUCCESS);
  }
  // A stream of another context.
  explicit TestStream(const PrimaryContext& context) {
    const ContextGuard guard(*SharedDriver(), context);
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~TestStream() { Destroy(); }
  TestStream(TestStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  TestStream& operator=(TestStream&&) = delete;

  operator CUstream() const { return stream_; }
  // Before its scope ends.
  void Destroy() {
    const CUstream stream = std::exchange(stream_, nullptr);
    if (stream == nullptr) return;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
  }

 private:
  CUstream stream_ = nullptr;
};

}  // namespace commpool::internal::testing
