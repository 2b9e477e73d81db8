#include "src/library/driver/handles.h"

#include <string>
#include <type_traits>
#include <utility>

#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal {
namespace {

using testing::CallCount;
using testing::InjectedFault;

// The fixture fails each test that leaves anything behind.
class Handles : public testing::EmulatorTest {
 protected:
  CUmemAllocationProp properties() { return testing::PropertiesAt(testing::DeviceLocation(0)); }
  uint64_t granularity() { return testing::GranularityAt(driver(), testing::DeviceLocation(0)); }
  PhysicalMemory MakeMemory() { return PhysicalMemory::Create(driver(), granularity(), properties()).value(); }
};

TEST_F(Handles, AreEmptyAtFirst) {
  EXPECT_FALSE(PhysicalMemory().valid());
  EXPECT_FALSE(AddressRange().valid());
  EXPECT_FALSE(Mapping().valid());
  EXPECT_FALSE(Event().valid());
  EXPECT_FALSE(PrimaryContext().valid());
  EXPECT_TRUE(PhysicalMemory().Release().ok());
}

template <typename Owner>
constexpr bool kMovesOnly = !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
                            std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>;
static_assert(kMovesOnly<PhysicalMemory> && kMovesOnly<AddressRange> && kMovesOnly<Mapping> && kMovesOnly<Event> &&
              kMovesOnly<PrimaryContext>);

TEST_F(Handles, OwnWhatAnotherCallMade) {
  const PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current(driver(), context);
  const AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const PhysicalMemory memory = MakeMemory();
  const Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  CUmemGenericAllocationHandle retained = 0;
  ASSERT_EQ(driver().cuda.cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(range.address())),
            CUDA_SUCCESS);
  PhysicalMemory second(driver(), {retained, memory.bytes()});
  EXPECT_EQ(second.bytes(), granularity());
  EXPECT_TRUE(second.Release().ok());
}

TEST_F(Handles, KeepWhatTheyOwnWhenMovedToThemselves) {
  PhysicalMemory memory = MakeMemory();
  const CUmemGenericAllocationHandle handle = memory.get();
  PhysicalMemory& same = memory;
  memory = std::move(same);
  EXPECT_TRUE(memory.valid());
  EXPECT_EQ(memory.get(), handle);
}

TEST_F(Handles, ASecondReleaseCallsNothing) {
  PhysicalMemory memory = MakeMemory();
  EXPECT_TRUE(memory.Release().ok());
  const uint64_t released = CallCount("cuMemRelease");
  EXPECT_TRUE(memory.Release().ok());
  EXPECT_EQ(CallCount("cuMemRelease"), released);
}

TEST_F(Handles, AMappingStaysWhereItCannotBeUnmapped) {
  const PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current(driver(), context);
  const AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const PhysicalMemory memory = MakeMemory();
  Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  {
    InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(mapping.Release().code(), StatusCode::kDriverError);
  }
  EXPECT_TRUE(mapping.valid());
  EXPECT_EQ(mapping.address(), range.address());
  EXPECT_TRUE(mapping.Release().ok());
  EXPECT_FALSE(mapping.valid());
}

TEST_F(Handles, ReleaseWhatTheyOwn) {
  const PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current(driver(), context);
  const AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const PhysicalMemory memory = MakeMemory();
  const Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  const Event event = Event::Create(driver()).value();
  EXPECT_EQ(mapping.address(), range.address());
  EXPECT_EQ(mapping.bytes(), memory.bytes());
}

TEST_F(Handles, AreEmptyAfterAMove) {
  PhysicalMemory first = MakeMemory();
  const CUmemGenericAllocationHandle handle = first.get();
  const PhysicalMemory second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT: the test is about the moved-from handle
  EXPECT_TRUE(second.valid());
  EXPECT_EQ(second.get(), handle);
}

TEST_F(Handles, FreeAtOnceWhatAnAssignmentReplaces) {
  PhysicalMemory memory = MakeMemory();
  PhysicalMemory other = MakeMemory();
  const uint64_t released = CallCount("cuMemRelease");
  memory = std::move(other);
  EXPECT_EQ(CallCount("cuMemRelease"), released + 1);
  EXPECT_TRUE(memory.valid());
  EXPECT_FALSE(other.valid());  // NOLINT
}

TEST_F(Handles, LeaveNothingWhereTheyCannotBeMade) {
  const PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current(driver(), context);
  const AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const PhysicalMemory memory = MakeMemory();
  const auto fail = [](const char* call) { return testing::Fault{.call = call, .result = CUDA_ERROR_UNKNOWN}; };
  {
    const InjectedFault fault(fail("cuMemCreate"));
    EXPECT_FALSE(PhysicalMemory::Create(driver(), granularity(), properties()).ok());
  }
  {
    const InjectedFault fault(fail("cuMemAddressReserve"));
    EXPECT_FALSE(AddressRange::Reserve(driver(), granularity(), 0).ok());
  }
  {
    const InjectedFault fault(fail("cuMemMap"));
    EXPECT_FALSE(Mapping::Map(driver(), range.address(), memory).ok());
  }
  {
    const InjectedFault fault(fail("cuEventCreate"));
    EXPECT_FALSE(Event::Create(driver()).ok());
  }
  {
    const InjectedFault fault(fail("cuDevicePrimaryCtxRetain"));
    EXPECT_FALSE(PrimaryContext::Retain(driver(), 0).ok());
  }
}

TEST_F(Handles, RefuseAMissingDevice) {
  EXPECT_EQ(PrimaryContext::Retain(driver(), 1000).status().code(), StatusCode::kDriverError);
  EXPECT_EQ(PrimaryContext::Retain(driver(), -1).status().code(), StatusCode::kDriverError);
}

TEST_F(Handles, RefuseSizesThatTheDriverRefuses) {
  EXPECT_FALSE(PhysicalMemory::Create(driver(), 0, properties()).ok());
  EXPECT_FALSE(PhysicalMemory::Create(driver(), UINT64_MAX, properties()).ok());
  EXPECT_FALSE(AddressRange::Reserve(driver(), 0, 0).ok());
}

TEST_F(Handles, TellWhyTheyCouldNotBeReleased) {
  PhysicalMemory memory = MakeMemory();
  const CUmemGenericAllocationHandle handle = memory.get();
  {
    const InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
    const Status status = memory.Release();
    EXPECT_NE(status.message().find("cuMemRelease of 2 MiB failed"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(memory.valid());
  EXPECT_EQ(driver().cuda.cuMemRelease(handle), CUDA_SUCCESS);  // releases what the fault kept
}

TEST_F(Handles, LogFailuresInDestructors) {
  PhysicalMemory memory = MakeMemory();
  const CUmemGenericAllocationHandle handle = memory.get();
  ::testing::internal::CaptureStderr();
  {
    const InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
    const PhysicalMemory dying = std::move(memory);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("cuMemRelease"), std::string::npos);
  EXPECT_EQ(driver().cuda.cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Handles, AreSilentWhereTheDriverIsGoneAlready) {
  PhysicalMemory memory = MakeMemory();
  const CUmemGenericAllocationHandle handle = memory.get();
  ::testing::internal::CaptureStderr();
  {
    const InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_DEINITIALIZED});
    const PhysicalMemory dying = std::move(memory);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(driver().cuda.cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Handles, CallNothingOnceTheyAreAbandoned) {
  CUmemGenericAllocationHandle handle = 0;
  uint64_t released = 0;
  {
    PhysicalMemory memory = MakeMemory();
    handle = memory.get();
    released = CallCount("cuMemRelease");
    memory.Abandon();
  }
  EXPECT_EQ(CallCount("cuMemRelease"), released);
  EXPECT_EQ(driver().cuda.cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Handles, AContextGuardPutsTheContextBack) {
  const PrimaryContext first = PrimaryContext::Retain(driver(), 0).value();
  const PrimaryContext second = PrimaryContext::Retain(driver(), 1).value();
  const auto current = [&] {
    CUcontext context = nullptr;
    EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  };
  const CUcontext before = current();
  {
    const ContextGuard outer(driver(), first);
    EXPECT_EQ(current(), first.get());
    {
      const ContextGuard keeper(driver());
      EXPECT_EQ(driver().cuda.cuCtxSetCurrent(second.get()), CUDA_SUCCESS);
    }
    EXPECT_EQ(current(), first.get());
  }
  EXPECT_EQ(current(), before);
}

}  // namespace
}  // namespace commpool::internal
