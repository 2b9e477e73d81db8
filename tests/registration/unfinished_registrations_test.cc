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

ncclResult_t Register(ncclComm_t, void* address, size_t, ncclWindow_t* window, int) {
  *window = reinterpret_cast<ncclWindow_t>(address);
  return busy ? ncclInProgress : ncclSuccess;
}
ncclResult_t RegisterLocal(const ncclComm_t, void* address, size_t, void** handle) {
  *handle = address;
  return ncclSuccess;
}
ncclResult_t Deregister(ncclComm_t, ncclWindow_t window) {
  ended.push_back(reinterpret_cast<uintptr_t>(window));
  return ncclSuccess;
}
ncclResult_t GetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

Driver OfNccl(int version) {
  Driver driver{};
  driver.cuda.cuCtxGetCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  driver.nccl.version = version;
  driver.nccl.ncclCommWindowRegister = Register;
  driver.nccl.ncclCommWindowDeregister = Deregister;
  driver.nccl.ncclCommRegister = RegisterLocal;
  driver.nccl.ncclMemAlloc = [](void**, size_t) { return ncclSuccess; };
  driver.nccl.ncclCommGetAsyncError = GetAsyncError;
  return driver;
}

Communicator Numbered(uintptr_t number) { return {.handle = reinterpret_cast<ncclComm_t>(number)}; }
SegmentToRegister Segment(uint32_t index, uint64_t bytes = 100) { return {index, 4096 * (index + 1), bytes}; }

class Registrations : public ::testing::Test {
 protected:
  void SetUp() override {
    busy = false;
    ended.clear();
  }
  RegistrationSet SetOf(const Driver& driver, RegistrationKind kind = RegistrationKind::kWindow) {
    return RegistrationSet(driver, kind, kDeadlineMs, windows_);
  }
  // Begins registrations that NCCL does not finish.
  static void AddUnfinished(RegistrationSet& set, const Communicator& communicator, uint32_t segment) {
    busy = true;
    EXPECT_EQ(set.Add(communicator, {Segment(segment)}).code(), StatusCode::kDeadlineExceeded);
    busy = false;
  }

 private:
  WindowBook windows_;
};

using UnfinishedRegistrations = Registrations;

TEST_F(UnfinishedRegistrations, KeepASegmentUntilTheyAreEnded) {
  const Driver driver = OfNccl(22809);
  RegistrationSet set = SetOf(driver);
  EXPECT_TRUE(set.DeregisterSegment(3).ok());
  AddUnfinished(set, Numbered(1), 3);
  ExpectFailure(set.DeregisterSegment(3), StatusCode::kDeadlineExceeded, "of segment 3: abandon");
  EXPECT_TRUE(set.DeregisterSegment(2).ok());
  EXPECT_TRUE(set.IsRegistered(3)) << "NCCL may come to have it";
  EXPECT_TRUE(set.IsRegisteredWith(Numbered(1).handle)) << "NCCL may come to have it";
  EXPECT_TRUE(set.EndUnfinished(Numbered(1).handle, kDeadlineMs).ok());
  EXPECT_TRUE(set.DeregisterSegment(3).ok());
  EXPECT_EQ(ended, std::vector<uintptr_t>{Segment(3).address});
}

TEST_F(UnfinishedRegistrations, AreEndedOfOneCommunicatorInTheOrderInWhichTheyCame) {
  const Driver driver = OfNccl(22809);
  RegistrationSet set = SetOf(driver);
  for (const uint32_t segment : {5, 2, 9}) {
    AddUnfinished(set, Numbered(1), segment);
    AddUnfinished(set, Numbered(2), segment);
  }
  const std::vector<uintptr_t> in_order = {Segment(5).address, Segment(2).address, Segment(9).address};
  EXPECT_TRUE(set.EndUnfinished(Numbered(1).handle, kDeadlineMs).ok());
  EXPECT_EQ(ended, in_order);
  EXPECT_FALSE(set.IsRegisteredWith(Numbered(1).handle));
  EXPECT_TRUE(set.IsRegisteredWith(Numbered(2).handle));
  EXPECT_FALSE(set.DeregisterSegment(2).ok()) << "the other communicator's";
  ended.clear();
  EXPECT_TRUE(set.EndUnfinished(Numbered(1).handle, kDeadlineMs).ok());
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(set.EndUnfinished(Numbered(2).handle, kDeadlineMs).ok());
  EXPECT_EQ(ended, in_order);
}

// What NCCL is at nobody forgets, or begins again.
TEST_F(UnfinishedRegistrations, KeepTheirCommunicatorUntilItIsAbandoned) {
  const Driver driver = OfNccl(22809);
  RegistrationSet set = SetOf(driver);
  AddUnfinished(set, Numbered(1), 3);
  EXPECT_EQ(set.Add(Numbered(1), {Segment(3)}).code(), StatusCode::kDeadlineExceeded);
  for (const Status& status : {set.Remove(Numbered(1).handle), set.RemoveAll(), set.CheckFinished()}) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.message();
  }
  EXPECT_TRUE(set.IsRegisteredWith(Numbered(1).handle));
  EXPECT_TRUE(set.Remove(Numbered(2).handle).ok());
  EXPECT_TRUE(set.EndUnfinished(Numbered(1).handle, kDeadlineMs).ok());
  EXPECT_TRUE(set.RemoveAll().ok());
  EXPECT_EQ(ended, std::vector<uintptr_t>{Segment(3).address});
}

using HeldWindows = Registrations;

TEST_F(HeldWindows, CountASegmentOnceForAllCommunicators) {
  const Driver driver = OfNccl(22906);
  RegistrationSet set = SetOf(driver);
  for (const uintptr_t communicator : {1, 2}) {
    EXPECT_TRUE(set.Add(Numbered(communicator), {Segment(0)}).ok());
    EXPECT_EQ(set.Forget(Numbered(communicator).handle), 100u);
  }
  EXPECT_TRUE(set.Add(Numbered(3), {Segment(1, 50)}).ok());
  EXPECT_EQ(set.Forget(Numbered(3).handle), 50u);
  EXPECT_EQ(set.held_bytes(), 150u);
}

TEST_F(HeldWindows, CountWindowsAloneAndNoneWhereNcclEndsThemInAnAbort) {
  struct Case {
    int version;
    RegistrationKind kind;
  };
  for (const Case& one : {Case{22906, RegistrationKind::kLocal}, Case{22907, RegistrationKind::kWindow}}) {
    const Driver driver = OfNccl(one.version);
    RegistrationSet set = SetOf(driver, one.kind);
    EXPECT_TRUE(set.Add(Numbered(1), {Segment(0)}).ok());
    EXPECT_EQ(set.Forget(Numbered(1).handle), 0u);
    EXPECT_EQ(set.held_bytes(), 0u);
  }
}

}  // namespace
}  // namespace commpool::internal
