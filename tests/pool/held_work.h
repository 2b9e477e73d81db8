// Streams that wait until the test lets them go on.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "tools/common/launch.h"

namespace commpool::internal::testing {

// Work that uses a block. For the emulator only.
class HeldWork {
 public:
  HeldWork(const Driver& driver, CUstream stream, CUdeviceptr address) {
    const std::shared_future<void> ended = end_.get_future().share();
    EXPECT_TRUE(Launch(driver, stream, {}, {{address, 512}}, [ended](const auto&, const auto&) { ended.wait(); }).ok());
  }
  // Else it ends with this object.
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

// The stream's later work waits. This works on hardware too.
class HeldStream {
 public:
  HeldStream(const CudaDriver& cuda, CUstream stream) {
    // Its own, because it may still look at it when this object is gone.
    auto ended = std::make_unique<std::future<void>>(end_.get_future());
    const auto wait = [](void* future) {
      std::unique_ptr<std::future<void>>(static_cast<std::future<void>*>(future))->wait();
    };
    EXPECT_EQ(cuda.cuLaunchHostFunc(stream, wait, ended.release()), CUDA_SUCCESS);
  }
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

}  // namespace commpool::internal::testing
