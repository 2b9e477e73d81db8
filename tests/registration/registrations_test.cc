// Registrations of ranges with communicators, one by one and as a set.
#include <functional>

#include "src/library/registration/registered_range.h"
#include "src/library/registration/registration_set.h"
#include "tests/registration/registration_fixture.h"

namespace commpool::internal::testing {
namespace {

Fault NoRegistrationAfter(int calls) {
  return {.call = "ncclCommWindowRegister", .result = ncclSystemError, .skip = calls};
}

Fault NoDeregistrationAfter(int calls, int count = 1) {
  return {.call = "ncclCommWindowDeregister", .result = ncclSystemError, .skip = calls, .count = count};
}

class RegistrationSets : public RegistrationTest {
 protected:
  void SetUp() override {
    RegistrationTest::SetUp();
    if (IsSkipped()) return;
    if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
    home_ = Connect();
    other_ = Connect();
    segments_ = {MakeSegment(0), MakeSegment(1), MakeSegment(2)};
    set_ = std::make_unique<RegistrationSet>(driver(), RegistrationKind::kWindow, kDeadlineMs, windows_);
  }
  void TearDown() override {
    if (set_ != nullptr) ExpectOk({set_->RemoveAll()});
    RegistrationTest::TearDown();
  }

  Status AddHome(size_t segments) { return set_->Add(home_, First(segments)); }
  Status AddBoth(size_t segments) {
    const Status added = AddHome(segments);
    return added.ok() ? set_->Add(other_, First(segments)) : added;
  }
  std::optional<WindowPlace> Found(const Communicator& communicator, size_t segment) {
    return windows_.Find(communicator.handle, segments_[segment].address);
  }
  std::optional<WindowPlace> FirstOfHome() { return Found(home_, 0); }
  std::vector<SegmentToRegister> First(size_t count) const {
    return {segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  static uint64_t Calls() { return CallCount("ncclCommWindowRegister"); }

  // The call fails for this segment's registration with this communicator; `left` registrations it does not end.
  void ExpectAllButOneEnded(const std::function<Status()>& end, int failing, const Communicator& communicator,
                            uint32_t segment, uint64_t left) {
    ExpectOk({AddBoth(2)});
    ExpectFailure(With(NoDeregistrationAfter(failing), end), StatusCode::kCommunicatorError,
                  "ncclCommWindowDeregister");
    EXPECT_EQ(set_->registrations(), left + 1);
    EXPECT_TRUE(set_->IsRegisteredWith(communicator.handle));
    EXPECT_TRUE(set_->IsRegistered(segment));
    const uint64_t calls = CallCount("ncclCommWindowDeregister");
    ExpectOk({end()});
    EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls + 1) << "for the only one that is left";
    EXPECT_EQ(set_->registrations(), left);
    ExpectOk({set_->RemoveAll()});
  }

  Communicator home_;
  Communicator other_;
  std::vector<SegmentToRegister> segments_;
  WindowBook windows_;
  std::unique_ptr<RegistrationSet> set_;
};

using RegistrationSetsUnderFaults = UnderFaults<RegistrationSets>;

TEST_F(RegistrationSets, HoldOneRegistrationAPair) {
  EXPECT_TRUE(set_->empty());
  ExpectOk({AddBoth(2)});
  EXPECT_TRUE(set_->Has(home_.handle));
  EXPECT_EQ(set_->registrations(), 4u);
  EXPECT_EQ(set_->pending(3), 2u);
  EXPECT_EQ(set_->pending(0), 0u) << "a segment is registered before the pool's book has it";
  const uint64_t calls = Calls();
  ExpectOk({AddHome(2), set_->RegisterSegment(segments_[1])});
  EXPECT_EQ(set_->RegisterPending(First(2)).value(), 0u);
  EXPECT_EQ(Calls(), calls);
  EXPECT_EQ(set_->registrations(), 4u);
}

TEST_F(RegistrationSets, RegisterLaterSegmentsWithEveryCommunicator) {
  ExpectOk({AddBoth(0), set_->RegisterSegment(segments_[0])});
  EXPECT_EQ(set_->registrations(), 2u);
  EXPECT_EQ(set_->RegisterPending(segments_).value(), 4u);
  EXPECT_EQ(set_->pending(3), 0u);
}

TEST_F(RegistrationSets, FindTheWindowAndTheOffset) {
  ExpectOk({AddHome(1)});
  const CUdeviceptr address = segments_[0].address;
  const WindowPlace place = windows_.Find(home_.handle, address + 4096).value();
  EXPECT_NE(place.window, nullptr);
  EXPECT_EQ(place.offset, 4096u);
  EXPECT_FALSE(Found(home_, 1));
  EXPECT_FALSE(windows_.Find(other_.handle, address));
  EXPECT_FALSE(windows_.Find(nullptr, address));
}

TEST_F(RegistrationSets, FindNothingThatHasEnded) {
  ExpectOk({AddBoth(3), set_->DeregisterSegment(1)});
  EXPECT_TRUE(Found(home_, 0) && Found(other_, 2));
  EXPECT_FALSE(Found(home_, 1) || Found(other_, 1));
  ExpectOk({set_->Remove(other_.handle)});
  EXPECT_FALSE(Found(other_, 0));
  EXPECT_TRUE(Found(home_, 0));
  ExpectOk({set_->RegisterSegment(segments_[1])});
  EXPECT_TRUE(Found(home_, 1));
}

TEST_F(RegistrationSetsUnderFaults, AFailedAddChangesNothing) {
  EXPECT_FALSE(With(NoRegistrationAfter(2), [&] { return AddHome(3); }).ok());
  EXPECT_FALSE(set_->Has(home_.handle));
  EXPECT_EQ(set_->registrations(), 0u);

  ExpectOk({AddHome(1)});
  EXPECT_FALSE(With(NoRegistrationAfter(1), [&] { return AddHome(3); }).ok());
  EXPECT_TRUE(set_->Has(home_.handle));
  EXPECT_TRUE(set_->IsRegistered(0));
  EXPECT_FALSE(set_->IsRegistered(1));
}

TEST_F(RegistrationSetsUnderFaults, ASegmentThatOneCommunicatorRefusesIsRegisteredWithNone) {
  ExpectOk({AddBoth(0)});
  const InjectedFault second(NoRegistrationAfter(1));
  EXPECT_FALSE(set_->RegisterSegment(segments_[0]).ok());
  EXPECT_EQ(set_->registrations(), 1u) << "the caller undoes it";
  ExpectOk({set_->DeregisterSegment(0)});
  EXPECT_EQ(set_->registrations(), 0u);
  EXPECT_TRUE(set_->Has(other_.handle));
}

TEST_F(RegistrationSetsUnderFaults, AFailedRegisterPendingChangesNothing) {
  ExpectOk({AddHome(1), set_->Add(other_, {})});
  const InjectedFault fourth(NoRegistrationAfter(3));
  EXPECT_FALSE(set_->RegisterPending(segments_).ok());
  EXPECT_EQ(set_->registrations(), 1u);
}

TEST_F(RegistrationSets, DeregisterASegmentEverywhereAndACommunicatorWhole) {
  ExpectOk({AddBoth(3), set_->DeregisterSegment(1)});
  EXPECT_FALSE(set_->IsRegistered(1));
  EXPECT_EQ(set_->registrations(), 4u);
  ExpectOk({set_->Remove(other_.handle)});
  EXPECT_FALSE(set_->Has(other_.handle));
  EXPECT_EQ(set_->registrations(), 2u);
  ExpectOk({set_->DeregisterSegment(7), set_->Remove(other_.handle), set_->Remove(nullptr)});
}

TEST_F(RegistrationSetsUnderFaults, KeepASegmentThatNcclWouldNotLetGo) {
  ExpectOk({AddHome(1)});
  {
    const InjectedFault twice(NoDeregistrationAfter(0, 2));
    for (int time = 0; time < 2; ++time) {
      ExpectFailure(set_->DeregisterSegment(0), StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
    }
  }
  EXPECT_TRUE(set_->IsRegistered(0)) << "so nobody unmaps it";
  EXPECT_EQ(set_->registrations(), 1u);
  EXPECT_FALSE(FirstOfHome()) << "its window may be half ended";
  ExpectOk({set_->DeregisterSegment(0)});
  EXPECT_FALSE(set_->IsRegistered(0));
}

TEST_F(RegistrationSetsUnderFaults, SayWhatAFailedRegistrationCouldNotUndo) {
  {
    const InjectedFault second(NoRegistrationAfter(1));
    const InjectedFault first(NoDeregistrationAfter(0));
    ExpectFailure(AddHome(2), StatusCode::kCommunicatorError, "deregister or abandon the communicator before it ends");
  }
  EXPECT_TRUE(set_->IsRegisteredWith(home_.handle));
  ExpectFailure(set_->CheckNoneEnding(home_.handle), StatusCode::kFailedPrecondition, "NCCL has not ended");
  ExpectOk({set_->Remove(home_.handle), set_->CheckNoneEnding(home_.handle)});
}

TEST_F(RegistrationSetsUnderFaults, KeepACommunicatorThatNcclWouldNotLetGo) {
  ExpectOk({AddHome(2)});
  ExpectFailure(With(NoDeregistrationAfter(1), [&] { return set_->Remove(home_.handle); }),
                StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
  EXPECT_TRUE(set_->IsRegisteredWith(home_.handle));
  EXPECT_FALSE(set_->empty());
  EXPECT_FALSE(set_->Has(home_.handle)) << "other ranks have left it, so later segments are not registered with it";
  ExpectOk({set_->RegisterSegment(segments_[2])});
  EXPECT_EQ(set_->registrations(), 1u);
  ExpectOk({set_->Remove(home_.handle)});
  EXPECT_FALSE(set_->IsRegisteredWith(home_.handle));
  EXPECT_TRUE(set_->empty());
}

TEST_F(RegistrationSetsUnderFaults, EndWhatNcclWouldNotLetGoBeforeItIsRegisteredAgain) {
  ExpectOk({AddHome(1)});
  EXPECT_FALSE(With(NoDeregistrationAfter(0), [&] { return set_->DeregisterSegment(0); }).ok());
  ExpectOk({set_->RegisterSegment(segments_[0])});
  EXPECT_EQ(set_->registrations(), 1u);
  EXPECT_TRUE(FirstOfHome());
  EXPECT_TRUE(EmulatorReports().empty()) << "never two windows over one memory";
}

TEST_F(RegistrationSetsUnderFaults, EndAllTheyCanAndReturnTheFirstFailure) {
  const auto deregister = [&] { return set_->DeregisterSegment(0); };
  const auto remove = [&] { return set_->Remove(home_.handle); };
  const auto remove_all = [&] { return set_->RemoveAll(); };
  ExpectAllButOneEnded(deregister, 0, home_, 0, 2);
  ExpectAllButOneEnded(deregister, 1, other_, 0, 2);
  ExpectAllButOneEnded(remove, 0, home_, 0, 2);
  ExpectAllButOneEnded(remove, 1, home_, 1, 2);
  ExpectAllButOneEnded(remove_all, 0, home_, 0, 0);
  ExpectAllButOneEnded(remove_all, 2, home_, 1, 0);
}

TEST_F(RegistrationSets, ForgettingCallsNothing) {
  COMMPOOL_REQUIRE_EMULATOR("calls are counted");
  ExpectOk({AddHome(1)});
  const ncclWindow_t window = FirstOfHome().value().window;
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(set_->Forget(home_.handle), segments_[0].bytes);
  EXPECT_EQ(set_->held_bytes(), segments_[0].bytes);
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_TRUE(set_->empty());
  EXPECT_FALSE(FirstOfHome());
  EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(home_.handle, window), ncclSuccess);
}

TEST_F(RegistrationSetsUnderFaults, ForgetWhatNcclWouldNotLetGoWithItsCommunicator) {
  ExpectOk({AddHome(1)});
  const ncclWindow_t window = FirstOfHome().value().window;
  EXPECT_FALSE(With(NoDeregistrationAfter(0), [&] { return set_->Remove(home_.handle); }).ok());
  EXPECT_EQ(set_->held_bytes(), 0u) << "a later call may still end it";
  EXPECT_EQ(set_->Forget(home_.handle), segments_[0].bytes);
  EXPECT_EQ(set_->held_bytes(), segments_[0].bytes);
  EXPECT_FALSE(set_->IsRegistered(0));
  EXPECT_TRUE(set_->empty());
  EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(home_.handle, window), ncclSuccess);
}

// Home first, then in the order of adding: the same on every rank, unlike their addresses.
TEST_F(RegistrationSetsUnderFaults, ServeCommunicatorsInTheOrderInWhichTheyCame) {
  const bool ascending = std::less<ncclComm_t>()(home_.handle, other_.handle);
  const Communicator& first = ascending ? other_ : home_;
  const Communicator& second = ascending ? home_ : other_;
  ExpectOk({set_->Add(first, First(1)), set_->Add(second, First(1))});
  const InjectedFault on_the_first(NoDeregistrationAfter(0));
  EXPECT_FALSE(set_->DeregisterSegment(0).ok());
  EXPECT_TRUE(set_->IsRegisteredWith(first.handle));
  EXPECT_FALSE(set_->IsRegisteredWith(second.handle));
}

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

  Communicator communicator_;
};

TEST_F(RegisteredRanges, HoldAHandleOfTheirKind) {
  const SegmentToRegister segment = MakeSegment(0);
  const RegisteredRange local = Register(RegistrationKind::kLocal, segment).value();
  EXPECT_NE(local.local_handle, nullptr);
  EXPECT_EQ(local.window, nullptr);
  ExpectOk({DeregisterRange(driver(), communicator_, local, kDeadlineMs)});

  if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
  const RegisteredRange window = Register(RegistrationKind::kWindow, segment).value();
  EXPECT_NE(window.window, nullptr);
  EXPECT_EQ(window.local_handle, nullptr);
  ExpectOk({DeregisterRange(driver(), communicator_, window, kDeadlineMs)});
}

TEST_F(RegisteredRanges, KeepTheCurrentContext) {
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&before), CUDA_SUCCESS);
  ExpectOk({DeregisterRange(driver(), communicator_, Register(RegistrationKind::kLocal, MakeSegment(0)).value(),
                            kDeadlineMs)});
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
  EXPECT_NE(driver().nccl.ncclCommWindowRegister(communicator_.handle, nullptr, segment.bytes, nullptr, 0),
            ncclSuccess);
  const std::string said = driver().nccl.ncclGetLastError(nullptr);
  ASSERT_FALSE(said.empty()) << "the program's mistake leaves NCCL's words";
  const InjectedFault fault({.call = "ncclCommRegister", .result = ncclSystemError});
  const Status status = Register(RegistrationKind::kLocal, segment).status();
  EXPECT_EQ(status.code(), StatusCode::kCommunicatorError);
  EXPECT_EQ(status.message().find(said), std::string::npos) << status.message();
}

}  // namespace
}  // namespace commpool::internal::testing
