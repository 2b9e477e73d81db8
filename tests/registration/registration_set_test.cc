#include "src/library/registration/registration_set.h"

#include <functional>

#include "tests/registration/registration_fixture.h"

namespace commpool::internal::testing {
namespace {

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

  RegistrationSet& set() { return *set_; }
  const WindowBook& windows() const { return windows_; }
  const Communicator& home() const { return home_; }
  const Communicator& other() const { return other_; }
  const std::vector<SegmentToRegister>& segments() const { return segments_; }
  std::vector<SegmentToRegister> First(size_t count) const {
    return {segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  static uint64_t Calls() { return CallCount("ncclCommWindowRegister"); }

 private:
  Communicator home_;
  Communicator other_;
  std::vector<SegmentToRegister> segments_;
  WindowBook windows_;
  std::unique_ptr<RegistrationSet> set_;
};

InjectedFault FailRegistrationAfter(int calls) {
  return InjectedFault({.call = "ncclCommWindowRegister", .result = ncclSystemError, .skip = calls});
}

InjectedFault FailDeregistrationAfter(int calls, int count = 1) {
  return InjectedFault({.call = "ncclCommWindowDeregister", .result = ncclSystemError, .skip = calls, .count = count});
}

TEST_F(RegistrationSets, HoldOneRegistrationAPair) {
  EXPECT_TRUE(set().empty());
  ExpectOk({set().Add(home(), First(2)), set().Add(other(), First(2))});
  EXPECT_TRUE(set().Has(home().handle));
  EXPECT_EQ(set().registrations(), 4u);
  EXPECT_EQ(set().pending(3), 2u);
  EXPECT_EQ(set().pending(0), 0u) << "a segment is registered before the pool's book has it";
  const uint64_t calls = Calls();
  ExpectOk({set().Add(home(), First(2)), set().RegisterSegment(segments()[1])});
  EXPECT_EQ(set().RegisterPending(First(2)).value(), 0u);
  EXPECT_EQ(Calls(), calls);
  EXPECT_EQ(set().registrations(), 4u);
}

TEST_F(RegistrationSets, RegisterLaterSegmentsWithEveryCommunicator) {
  ExpectOk({set().Add(home(), {}), set().Add(other(), {})});
  ExpectOk({set().RegisterSegment(segments()[0])});
  EXPECT_EQ(set().registrations(), 2u);
  EXPECT_EQ(set().RegisterPending(segments()).value(), 4u);
  EXPECT_EQ(set().pending(3), 0u);
}

TEST_F(RegistrationSets, FindTheWindowAndTheOffset) {
  ExpectOk({set().Add(home(), First(1))});
  const CUdeviceptr address = segments()[0].address;
  const WindowPlace place = windows().Find(home().handle, address + 4096).value();
  EXPECT_NE(place.window, nullptr);
  EXPECT_EQ(place.offset, 4096u);
  EXPECT_FALSE(windows().Find(home().handle, segments()[1].address));
  EXPECT_FALSE(windows().Find(other().handle, address));
  EXPECT_FALSE(windows().Find(nullptr, address));
}

TEST_F(RegistrationSets, FindNothingThatHasEnded) {
  const auto found = [&](const Communicator& communicator, size_t segment) {
    return windows().Find(communicator.handle, segments()[segment].address).has_value();
  };
  ExpectOk({set().Add(home(), segments()), set().Add(other(), segments())});
  ExpectOk({set().DeregisterSegment(1)});
  EXPECT_TRUE(found(home(), 0) && found(other(), 2));
  EXPECT_FALSE(found(home(), 1) || found(other(), 1));
  ExpectOk({set().Remove(other().handle)});
  EXPECT_FALSE(found(other(), 0));
  EXPECT_TRUE(found(home(), 0));
  ExpectOk({set().RegisterSegment(segments()[1])});
  EXPECT_TRUE(found(home(), 1));
}

TEST_F(RegistrationSets, AFailedAddChangesNothing) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  {
    const InjectedFault third = FailRegistrationAfter(2);
    EXPECT_FALSE(set().Add(home(), segments()).ok());
  }
  EXPECT_FALSE(set().Has(home().handle));
  EXPECT_EQ(set().registrations(), 0u);

  ExpectOk({set().Add(home(), First(1))});
  {
    const InjectedFault second = FailRegistrationAfter(1);
    EXPECT_FALSE(set().Add(home(), segments()).ok());
  }
  EXPECT_TRUE(set().Has(home().handle));
  EXPECT_TRUE(set().IsRegistered(0));
  EXPECT_FALSE(set().IsRegistered(1));
}

TEST_F(RegistrationSets, ASegmentThatOneCommunicatorRefusesIsRegisteredWithNone) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), {}), set().Add(other(), {})});
  const InjectedFault second = FailRegistrationAfter(1);
  EXPECT_FALSE(set().RegisterSegment(segments()[0]).ok());
  EXPECT_EQ(set().registrations(), 1u) << "the caller undoes it";
  ExpectOk({set().DeregisterSegment(0)});
  EXPECT_EQ(set().registrations(), 0u);
  EXPECT_TRUE(set().Has(other().handle));
}

TEST_F(RegistrationSets, AFailedRegisterPendingChangesNothing) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), First(1)), set().Add(other(), {})});
  const InjectedFault fourth = FailRegistrationAfter(3);
  EXPECT_FALSE(set().RegisterPending(segments()).ok());
  EXPECT_EQ(set().registrations(), 1u);
}

TEST_F(RegistrationSets, DeregisterASegmentEverywhereAndACommunicatorWhole) {
  ExpectOk({set().Add(home(), segments()), set().Add(other(), segments())});
  ExpectOk({set().DeregisterSegment(1)});
  EXPECT_FALSE(set().IsRegistered(1));
  EXPECT_EQ(set().registrations(), 4u);
  ExpectOk({set().Remove(other().handle)});
  EXPECT_FALSE(set().Has(other().handle));
  EXPECT_EQ(set().registrations(), 2u);
  ExpectOk({set().DeregisterSegment(7), set().Remove(other().handle), set().Remove(nullptr)});
}

TEST_F(RegistrationSets, KeepASegmentThatNcclWouldNotLetGo) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), First(1))});
  {
    const InjectedFault twice = FailDeregistrationAfter(0, 2);
    for (int time = 0; time < 2; ++time) {
      ExpectFailure(set().DeregisterSegment(0), StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
    }
  }
  EXPECT_TRUE(set().IsRegistered(0)) << "so nobody unmaps it";
  EXPECT_EQ(set().registrations(), 1u);
  EXPECT_FALSE(windows().Find(home().handle, segments()[0].address)) << "its window may be half ended";
  ExpectOk({set().DeregisterSegment(0)});
  EXPECT_FALSE(set().IsRegistered(0));
}

TEST_F(RegistrationSets, SayWhatAFailedRegistrationCouldNotUndo) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  {
    const InjectedFault second = FailRegistrationAfter(1);
    const InjectedFault first = FailDeregistrationAfter(0);
    ExpectFailure(set().Add(home(), First(2)), StatusCode::kCommunicatorError,
                  "deregister or abandon the communicator before it ends");
  }
  EXPECT_TRUE(set().IsRegisteredWith(home().handle));
  ExpectFailure(set().CheckNoneEnding(home().handle), StatusCode::kFailedPrecondition, "NCCL has not ended");
  ExpectOk({set().Remove(home().handle), set().CheckNoneEnding(home().handle)});
}

TEST_F(RegistrationSets, KeepACommunicatorThatNcclWouldNotLetGo) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), First(2))});
  {
    const InjectedFault second = FailDeregistrationAfter(1);
    ExpectFailure(set().Remove(home().handle), StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
  }
  EXPECT_TRUE(set().IsRegisteredWith(home().handle));
  EXPECT_FALSE(set().empty());
  EXPECT_FALSE(set().Has(home().handle)) << "other ranks have left it, so later segments are not registered with it";
  ExpectOk({set().RegisterSegment(segments()[2])});
  EXPECT_EQ(set().registrations(), 1u);
  ExpectOk({set().Remove(home().handle)});
  EXPECT_FALSE(set().IsRegisteredWith(home().handle));
  EXPECT_TRUE(set().empty());
}

TEST_F(RegistrationSets, EndWhatNcclWouldNotLetGoBeforeItIsRegisteredAgain) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), First(1))});
  {
    const InjectedFault once = FailDeregistrationAfter(0);
    EXPECT_FALSE(set().DeregisterSegment(0).ok());
  }
  ExpectOk({set().RegisterSegment(segments()[0])});
  EXPECT_EQ(set().registrations(), 1u);
  EXPECT_TRUE(windows().Find(home().handle, segments()[0].address));
  EXPECT_TRUE(EmulatorReports().empty()) << "never two windows over one memory";
}

TEST_F(RegistrationSets, EndAllTheyCanAndReturnTheFirstFailure) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const auto deregister = [&] { return set().DeregisterSegment(0); };
  const auto remove = [&] { return set().Remove(home().handle); };
  const auto remove_all = [&] { return set().RemoveAll(); };
  struct Case {
    std::function<Status()> end;
    int failing;  // the failing call
    const Communicator& communicator;
    uint32_t segment;
    uint64_t left;  // once the failing one has ended too
  };
  for (const Case& one :
       {Case{deregister, 0, home(), 0, 2}, Case{deregister, 1, other(), 0, 2}, Case{remove, 0, home(), 0, 2},
        Case{remove, 1, home(), 1, 2}, Case{remove_all, 0, home(), 0, 0}, Case{remove_all, 2, home(), 1, 0}}) {
    ExpectOk({set().Add(home(), First(2)), set().Add(other(), First(2))});
    {
      const InjectedFault fault = FailDeregistrationAfter(one.failing);
      ExpectFailure(one.end(), StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
    }
    EXPECT_EQ(set().registrations(), one.left + 1);
    EXPECT_TRUE(set().IsRegisteredWith(one.communicator.handle));
    EXPECT_TRUE(set().IsRegistered(one.segment));
    const uint64_t calls = CallCount("ncclCommWindowDeregister");
    ExpectOk({one.end()});
    EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls + 1) << "for the only one that is left";
    EXPECT_EQ(set().registrations(), one.left);
    ExpectOk({set().RemoveAll()});
  }
}

TEST_F(RegistrationSets, ForgettingCallsNothing) {
  COMMPOOL_REQUIRE_EMULATOR("calls are counted");
  ExpectOk({set().Add(home(), First(1))});
  const ncclWindow_t window = windows().Find(home().handle, segments()[0].address).value().window;
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(set().Forget(home().handle), segments()[0].bytes);
  EXPECT_EQ(set().held_bytes(), segments()[0].bytes);
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_TRUE(set().empty());
  EXPECT_FALSE(windows().Find(home().handle, segments()[0].address));
  EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(home().handle, window), ncclSuccess);
}

TEST_F(RegistrationSets, ForgetWhatNcclWouldNotLetGoWithItsCommunicator) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk({set().Add(home(), First(1))});
  const ncclWindow_t window = windows().Find(home().handle, segments()[0].address).value().window;
  {
    const InjectedFault once = FailDeregistrationAfter(0);
    EXPECT_FALSE(set().Remove(home().handle).ok());
  }
  EXPECT_EQ(set().held_bytes(), 0u) << "a later call may still end it";
  EXPECT_EQ(set().Forget(home().handle), segments()[0].bytes);
  EXPECT_EQ(set().held_bytes(), segments()[0].bytes);
  EXPECT_FALSE(set().IsRegistered(0));
  EXPECT_TRUE(set().empty());
  EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(home().handle, window), ncclSuccess);
}

// Home first, then in the order of adding: the same on every rank, unlike their addresses.
TEST_F(RegistrationSets, ServeCommunicatorsInTheOrderInWhichTheyCame) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const bool ascending = std::less<ncclComm_t>()(home().handle, other().handle);
  const Communicator& first = ascending ? other() : home();
  const Communicator& second = ascending ? home() : other();
  ExpectOk({set().Add(first, First(1)), set().Add(second, First(1))});
  const InjectedFault on_the_first = FailDeregistrationAfter(0);
  EXPECT_FALSE(set().DeregisterSegment(0).ok());
  EXPECT_TRUE(set().IsRegisteredWith(first.handle));
  EXPECT_FALSE(set().IsRegisteredWith(second.handle));
}

}  // namespace
}  // namespace commpool::internal::testing
