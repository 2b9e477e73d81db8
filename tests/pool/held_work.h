// Work on a stream that uses a block until the test lets it end. For the emulator only.
#pragma once

#include <gtest/gtest.h>

#include <future>

#include "tools/common/launch.h"

namespace commpool::internal::testing {

class HeldWork {
 public:
  HeldWork(const Driver& driver, CUstream stream, CUdeviceptr address) {
    const std::shared_future<void> ended = end_.get_future().share();
    EXPECT_TRUE(Launch(driver, stream, {}, {{address, 512}}, [ended](const auto&, const auto&) { ended.wait(); }).ok());
  }
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

}  // namespace commpool::internal::testing
