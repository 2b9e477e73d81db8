// What NCCL may still make of segments, and what it keeps for good. The communicators are numbers: nothing is called.
#include "src/registration/unfinished_registrations.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "src/registration/held_windows.h"

namespace commpool::internal {
namespace {

ncclComm_t Numbered(uintptr_t number) { return reinterpret_cast<ncclComm_t>(number); }

UnfinishedRegistration With(uintptr_t communicator, uint32_t segment) {
  UnfinishedRegistration registration;
  registration.communicator.handle = Numbered(communicator);
  registration.segment = segment;
  return registration;
}

std::vector<uint32_t> SegmentsOf(const ReservedVector<UnfinishedRegistration>& registrations) {
  std::vector<uint32_t> segments;
  for (const UnfinishedRegistration& one : registrations) segments.push_back(one.segment);
  return segments;
}

TEST(UnfinishedRegistrations, KeepASegmentUntilTheyAreTaken) {
  UnfinishedRegistrations unfinished;
  EXPECT_TRUE(unfinished.CheckNoneOf(3).ok());
  unfinished.Add(With(1, 3));
  const Status status = unfinished.CheckNoneOf(3);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("of segment 3: abandon"), std::string::npos) << status.message();
  EXPECT_TRUE(unfinished.CheckNoneOf(2).ok());
  EXPECT_EQ(SegmentsOf(unfinished.Take(Numbered(1))), std::vector<uint32_t>{3});
  EXPECT_TRUE(unfinished.CheckNoneOf(3).ok());
}

TEST(UnfinishedRegistrations, AreTakenOfOneCommunicatorInTheOrderInWhichTheyCame) {
  UnfinishedRegistrations unfinished;
  for (const uint32_t segment : {5, 2, 9}) {
    unfinished.Add(With(1, segment));
    unfinished.Add(With(2, segment));
  }
  EXPECT_EQ(SegmentsOf(unfinished.Take(Numbered(1))), (std::vector<uint32_t>{5, 2, 9}));
  EXPECT_FALSE(unfinished.AnyWith(Numbered(1)));
  EXPECT_TRUE(unfinished.AnyWith(Numbered(2)));
  EXPECT_FALSE(unfinished.CheckNoneOf(2).ok()) << "the other communicator's";
  EXPECT_TRUE(SegmentsOf(unfinished.Take(Numbered(1))).empty());
  EXPECT_EQ(SegmentsOf(unfinished.Take(Numbered(2))), (std::vector<uint32_t>{5, 2, 9}));
}

Driver OfNccl(int version) {
  Driver driver{};
  driver.nccl.version = version;
  return driver;
}

RegisteredRange Window(CUdeviceptr address, uint64_t bytes) {
  return {.kind = RegistrationKind::kWindow, .address = address, .bytes = bytes};
}

TEST(HeldWindows, CountASegmentOnceForAllCommunicators) {
  const Driver driver = OfNccl(22906);
  HeldWindows held(driver);
  EXPECT_EQ(held.Note(Window(4096, 100)), 100u);
  EXPECT_EQ(held.Note(Window(4096, 100)), 100u);
  EXPECT_EQ(held.Note(Window(8192, 50)), 50u);
  EXPECT_EQ(held.bytes(), 150u);
}

TEST(HeldWindows, CountWindowsAloneAndNoneWhereNcclEndsThemInAnAbort) {
  const Driver old = OfNccl(22906);
  HeldWindows windows(old);
  EXPECT_EQ(windows.Note({.kind = RegistrationKind::kLocal, .address = 4096, .bytes = 100}), 0u);
  EXPECT_EQ(windows.bytes(), 0u);
  const Driver newer = OfNccl(22907);
  HeldWindows none(newer);
  EXPECT_EQ(none.Note(Window(4096, 100)), 0u);
  EXPECT_EQ(none.bytes(), 0u);
}

}  // namespace
}  // namespace commpool::internal
