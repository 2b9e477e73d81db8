#include "src/library/registration/registered_range.h"

#include "tests/registration/registration_fixture.h"

namespace commpool::internal::testing {
namespace {

class RegisteredRanges : public RegistrationTest {
 protected:
  Result<RegisteredRange> Register(RegistrationKind kind, const SegmentToRegister& segment) {
    UnfinishedRange none = nullptr;
    return RegisterRange(driver(), communicator_, kind, segment.address, segment.bytes, kDeadlineMs, none);
  }
  void SetUp() override {
    RegistrationTest::SetUp();
    if (!IsSkipped()) communicator_ = Connect();
  }
  const Communicator& communicator() const { return communicator_; }

 private:
  Communicator communicator_;
};

TEST_F(RegisteredRanges, HoldAHandleOfTheirKind) {
  const SegmentToRegister segment = MakeSegment(0);
  const RegisteredRange local = Register(RegistrationKind::kLocal, segment).value();
  EXPECT_NE(local.local_handle, nullptr);
  EXPECT_EQ(local.window, nullptr);
  ExpectOk({DeregisterRange(driver(), communicator(), local, kDeadlineMs)});

  if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
  const RegisteredRange window = Register(RegistrationKind::kWindow, segment).value();
  EXPECT_NE(window.window, nullptr);
  EXPECT_EQ(window.local_handle, nullptr);
  ExpectOk({DeregisterRange(driver(), communicator(), window, kDeadlineMs)});
}

TEST_F(RegisteredRanges, KeepTheCurrentContext) {
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&before), CUDA_SUCCESS);
  const RegisteredRange range = Register(RegistrationKind::kLocal, MakeSegment(0)).value();
  ExpectOk({DeregisterRange(driver(), communicator(), range, kDeadlineMs)});
  EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&after), CUDA_SUCCESS);
  EXPECT_EQ(before, after);
}

TEST_F(RegisteredRanges, NameTheCallTheDeviceAndTheBytesThatFailed) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const SegmentToRegister segment = MakeSegment(0);
  const std::pair<RegistrationKind, const char*> calls[] = {{RegistrationKind::kLocal, "ncclCommRegister"},
                                                            {RegistrationKind::kWindow, "ncclCommWindowRegister"}};
  for (const auto& [kind, call] : calls) {
    const InjectedFault fault({.call = call, .result = ncclSystemError});
    ExpectFailure(Register(kind, segment).status(), StatusCode::kCommunicatorError,
                  std::string(call) + " of 2 MiB on device 0 failed");
  }
}

TEST_F(RegisteredRanges, DoNotTellWhatNcclSaidOfACallOfTheProgram) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const SegmentToRegister segment = MakeSegment(0);
  const ncclComm_t own = communicator().handle;
  EXPECT_NE(driver().nccl.ncclCommWindowRegister(own, nullptr, segment.bytes, nullptr, 0), ncclSuccess);
  const std::string said = driver().nccl.ncclGetLastError(nullptr);
  ASSERT_FALSE(said.empty()) << "the program's mistake leaves NCCL's words";
  const InjectedFault fault({.call = "ncclCommRegister", .result = ncclSystemError});
  const Status status = Register(RegistrationKind::kLocal, segment).status();
  EXPECT_EQ(status.code(), StatusCode::kCommunicatorError);
  EXPECT_EQ(status.message().find(said), std::string::npos) << status.message();
}

}  // namespace
}  // namespace commpool::internal::testing
