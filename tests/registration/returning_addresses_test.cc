// A pool's new segment lies where an old one was. Registrations and graphs of the old one do not count for the new one.
#include "tests/pool/announced_capture.h"
#include "tests/registration/fixed_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 32 * kMiB;

class ReturningFixed : public FixedRegistration {
 protected:
  void SetUp() override {
    FixedRegistration::SetUp();
    if (!IsSkipped()) other_ = Allocate(2 * kMiB);
  }
  void TearDown() override {
    if (other_ != 0) ExpectOk({pool().Free(other_)});
    FixedRegistration::TearDown();
  }

  // The address of the segment by which the pool grows; it is free again.
  CUdeviceptr AddressOfGrowth() {
    const CUdeviceptr block = Allocate(kBytes);
    ExpectOk({pool().Free(block)});
    return block;
  }

 private:
  CUdeviceptr other_ = 0;  // stays alive, because a pool without memory keeps no addresses
};

TEST_F(ReturningFixed, WhatWasRegisteredThereIsNotAgain) {
  ExpectOk({pool().mode().RegisterWith(communicator())});
  const CUdeviceptr before = AddressOfGrowth();
  EXPECT_EQ(pool().mode().RegisterPending().value(), 1u);
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(pool().Trim(0).value(), 0u) << "what is registered stays";
  const uint64_t deregistered = CallCount("ncclCommDeregister");
  ExpectOk({pool().mode().Deregister(communicator())});
  ExpectCalls("ncclCommDeregister", deregistered, 2);
  ASSERT_EQ(pool().Trim(0).value(), kBytes);

  ExpectOk({pool().mode().RegisterWith(communicator())});
  const uint64_t calls = CallCount("ncclCommRegister");
  EXPECT_EQ(AddressOfGrowth(), before);
  EXPECT_EQ(registered(), 1u) << "the other";
  EXPECT_EQ(pending(), 1u);
  EXPECT_EQ(pool().mode().RegisterPending().value(), 1u);
  ExpectCalls("ncclCommRegister", calls, 1);
  ExpectOk({pool().mode().Deregister(communicator())});
}

TEST_F(ReturningFixed, AddressesOfALiveGraphDoNotReturn) {
  ExpectOk({pool().mode().Reserve(kBytes)});
  AnnouncedCapture capture;
  ExpectOk({capture.Begin(runtime(), handle(), rank().stream)});
  const CUdeviceptr captured = Allocate(kBytes);
  ExpectOk({pool().Free(captured)});
  ExpectOk({capture.End()});
  EXPECT_EQ(pool().Trim(0).value(), 0u);
  EXPECT_NE(AddressOfGrowth(), captured);
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
  capture.DestroyGraph();
  EXPECT_EQ(pool().Trim(0).value(), kBytes);
}

TEST_F(ReturningFixed, AnotherPoolHasItsOwn) {
  const CUdeviceptr before = AddressOfGrowth();
  ASSERT_EQ(pool().Trim(0).value(), kBytes);
  PoolConfiguration configuration;
  configuration.name = "other";
  const std::shared_ptr<Pool> other = runtime().pools().Find(runtime().CreatePool(configuration).value()).value();
  const CUdeviceptr block = other->Allocate(kBytes, KeyOfStream(rank().stream, rank().number)).value();
  EXPECT_NE(block, before);
  EXPECT_EQ(AddressOfGrowth(), before);
  ExpectOk({other->Free(block)});
  ExpectOk({other->Close()});
}

}  // namespace
}  // namespace commpool::internal::testing
