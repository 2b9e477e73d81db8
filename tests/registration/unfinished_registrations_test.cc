// Registrations that NCCL has not finished, and memory that it keeps for good. Here NCCL is a few functions, and
// communicators are numbers.
#include <gtest/gtest.h>

#include <vector>

#include "src/library/registration/registration_set.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

constexpr uint64_t kDeadlineMs = 1;

// The state of this test's NCCL: whether its communicators are still busy, and the addresses of the windows that it has
// ended.
bool busy = false;
std::vector<uintptr_t> ended;

Driver OfNccl(int version) {
  Driver driver{};
  driver.cuda.cuCtxGetCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  driver.nccl.version = version;
  driver.nccl.ncclCommWindowRegister = [](ncclComm_t, void* address, size_t, ncclWindow_t* window, int) {
    *window = reinterpret_cast<ncclWindow_t>(address);
    return busy ? ncclInProgress : ncclSuccess;
  };
  driver.nccl.ncclCommWindowDeregister = [](ncclComm_t, ncclWindow_t window) {
    ended.push_back(reinterpret_cast<uintptr_t>(window));
    return ncclSuccess;
  };
  driver.nccl.ncclCommRegister = [](const ncclComm_t, void* address, size_t, void** handle) {
    *handle = address;
    return ncclSuccess;
  };
  driver.nccl.ncclMemAlloc = [](void**, size_t) { return ncclSuccess; };
  driver.nccl.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* state) {
    *state = busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  };
  return driver;
}

ncclComm_t Handle(uintptr_t number) { return reinterpret_cast<ncclComm_t>(number); }
Communicator Numbered(uintptr_t number) { return {.handle = Handle(number)}; }
SegmentToRegister Segment(uint32_t index, uint64_t bytes = 100) { return {index, 4096 * (index + 1), bytes}; }

class Registrations : public ::testing::Test {
 protected:
  void SetUp() override {
    busy = false;
    ended.clear();
  }
  RegistrationSet SetOf(int nccl_version, RegistrationKind kind = RegistrationKind::kWindow) {
    driver_ = OfNccl(nccl_version);
    return RegistrationSet(driver_, kind, kDeadlineMs, windows_);
  }
  // Begins registrations that NCCL does not finish.
  static void AddUnfinished(RegistrationSet& set, const Communicator& communicator, uint32_t segment) {
    busy = true;
    EXPECT_EQ(set.Add(communicator, {Segment(segment)}).code(), StatusCode::kDeadlineExceeded);
    busy = false;
  }

 private:
  Driver driver_;
  WindowBook windows_;
};

using UnfinishedRegistrations = Registrations;

TEST_F(UnfinishedRegistrations, KeepASegmentUntilTheyAreEnded) {
  RegistrationSet set = SetOf(22809);
  ExpectOk(set.DeregisterSegment(3));
  AddUnfinished(set, Numbered(1), 3);
  ExpectFailure(set.DeregisterSegment(3), StatusCode::kDeadlineExceeded, "of segment 3: abandon");
  ExpectOk(set.DeregisterSegment(2));
  EXPECT_TRUE(set.IsRegistered(3)) << "NCCL may come to have it";
  EXPECT_TRUE(set.IsRegisteredWith(Handle(1))) << "NCCL may come to have it";
  ExpectOk(set.EndUnfinished(Handle(1), kDeadlineMs));
  ExpectOk(set.DeregisterSegment(3));
  EXPECT_EQ(ended, std::vector<uintptr_t>{Segment(3).address});
}

TEST_F(UnfinishedRegistrations, AreEndedOfOneCommunicatorInTheOrderInWhichTheyCame) {
  RegistrationSet set = SetOf(22809);
  for (const uint32_t segment : {5, 2, 9}) {
    AddUnfinished(set, Numbered(1), segment);
    AddUnfinished(set, Numbered(2), segment);
  }
  const std::vector<uintptr_t> in_order = {Segment(5).address, Segment(2).address, Segment(9).address};
  ExpectOk(set.EndUnfinished(Handle(1), kDeadlineMs));
  EXPECT_EQ(ended, in_order);
  EXPECT_FALSE(set.IsRegisteredWith(Handle(1)));
  EXPECT_TRUE(set.IsRegisteredWith(Handle(2)));
  EXPECT_FALSE(set.DeregisterSegment(2).ok()) << "the other communicator's";
  ended.clear();
  ExpectOk(set.EndUnfinished(Handle(1), kDeadlineMs));
  EXPECT_TRUE(ended.empty());
  ExpectOk(set.EndUnfinished(Handle(2), kDeadlineMs));
  EXPECT_EQ(ended, in_order);
}

// What NCCL is at nobody forgets, or begins again.
TEST_F(UnfinishedRegistrations, KeepTheirCommunicatorUntilItIsAbandoned) {
  RegistrationSet set = SetOf(22809);
  AddUnfinished(set, Numbered(1), 3);
  EXPECT_EQ(set.Add(Numbered(1), {Segment(3)}).code(), StatusCode::kDeadlineExceeded);
  for (const Status& status : {set.Remove(Handle(1)), set.RemoveAll(), set.CheckFinished()}) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.message();
  }
  EXPECT_TRUE(set.IsRegisteredWith(Handle(1)));
  ExpectOk(set.Remove(Handle(2)));
  ExpectOk(set.EndUnfinished(Handle(1), kDeadlineMs));
  ExpectOk(set.RemoveAll());
  EXPECT_EQ(ended, std::vector<uintptr_t>{Segment(3).address});
}

using HeldWindows = Registrations;

TEST_F(HeldWindows, CountASegmentOnceForAllCommunicators) {
  RegistrationSet set = SetOf(22906);
  for (const uintptr_t communicator : {1, 2}) {
    ExpectOk(set.Add(Numbered(communicator), {Segment(0)}));
    EXPECT_EQ(set.Forget(Handle(communicator)), 100u);
  }
  ExpectOk(set.Add(Numbered(3), {Segment(1, 50)}));
  EXPECT_EQ(set.Forget(Handle(3)), 50u);
  EXPECT_EQ(set.held_bytes(), 150u);
}

TEST_F(HeldWindows, CountWindowsAloneAndNoneWhereNcclEndsThemInAnAbort) {
  for (const auto& [version, kind] :
       {std::pair(22906, RegistrationKind::kLocal), std::pair(22907, RegistrationKind::kWindow)}) {
    RegistrationSet set = SetOf(version, kind);
    ExpectOk(set.Add(Numbered(1), {Segment(0)}));
    EXPECT_EQ(set.Forget(Handle(1)), 0u);
    EXPECT_EQ(set.held_bytes(), 0u);
  }
}

}  // namespace
}  // namespace commpool::internal
