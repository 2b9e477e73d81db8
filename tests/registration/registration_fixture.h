// Communicators of one rank each and memory to register with them, all on device 0.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/registration/registration_set.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

class RegistrationTest : public DriverTest {
 protected:
  static constexpr uint64_t kBytes = 2 * kMiB;
  static constexpr uint64_t kDeadlineMs = 20000;

  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    context_ = PrimaryContext::Retain(driver(), 0).value();
    current_.emplace(driver(), context_);
  }
  void TearDown() override {
    for (void* memory : memories_) EXPECT_EQ(driver().nccl.ncclMemFree(memory), ncclSuccess);
    groups_.clear();
    current_.reset();
  }

  Communicator Connect() {
    groups_.push_back(std::make_unique<RankGroup>(1));
    return DescribeCommunicator(driver(), (*groups_.back())[0].communicator).value();
  }
  SegmentToRegister MakeSegment(uint32_t index) {
    void* memory = nullptr;
    EXPECT_EQ(driver().nccl.ncclMemAlloc(&memory, kBytes), ncclSuccess);
    memories_.push_back(memory);
    return {index, reinterpret_cast<CUdeviceptr>(memory), kBytes};
  }

 private:
  PrimaryContext context_;
  std::optional<ContextGuard> current_;
  std::vector<std::unique_ptr<RankGroup>> groups_;
  std::vector<void*> memories_;
};

}  // namespace commpool::internal::testing
