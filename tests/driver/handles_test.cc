// Owners of what the driver made, graphs' objects among them.
#include "src/library/driver/handles.h"

#include <functional>
#include <future>
#include <string>
#include <type_traits>
#include <utility>

#include "src/library/driver/graph_handles.h"
#include "tests/driver/capturing.h"
#include "tests/driver/conformance/conformance_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal {
namespace {

using testing::CallCount;
using testing::InjectedFault;

// The fixture fails each test that leaves anything behind.
class Handles : public testing::ConformanceTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("the test is about it alone"); }

  CUmemAllocationProp properties() { return testing::PropertiesAt(testing::DeviceLocation(0)); }
  PhysicalMemory MakeMemory() { return PhysicalMemory::Create(driver(), granularity(), properties()).value(); }
  // Releases memory by its destructor, which fails so; what it writes to stderr.
  std::string ReleasedWith(CUresult result) {
    PhysicalMemory memory = MakeMemory();
    const CUmemGenericAllocationHandle handle = memory.get();
    ::testing::internal::CaptureStderr();
    {
      const InjectedFault fault({.call = "cuMemRelease", .result = result});
      const PhysicalMemory dying = std::move(memory);
    }
    EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    return ::testing::internal::GetCapturedStderr();
  }
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
  const testing::MappedMemory mapped = MakeMapped(granularity());
  void* const address = reinterpret_cast<void*>(mapped.address());
  PhysicalMemory second(driver(), {testing::Get(cuda().cuMemRetainAllocationHandle, address), mapped.bytes()});
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
  testing::MappedMemory mapped = MakeMapped(granularity());
  Mapping& mapping = mapped.mapping();
  const CUdeviceptr address = mapping.address();
  {
    InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(mapping.Release().code(), StatusCode::kDriverError);
  }
  EXPECT_TRUE(mapping.valid());
  EXPECT_EQ(mapping.address(), address);
  EXPECT_TRUE(mapping.Release().ok());
  EXPECT_FALSE(mapping.valid());
}

TEST_F(Handles, ReleaseWhatTheyOwn) {
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
  const AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const PhysicalMemory memory = MakeMemory();
  const std::pair<const char*, std::function<bool()>> makes[] = {
      {"cuMemCreate", [&] { return PhysicalMemory::Create(driver(), granularity(), properties()).ok(); }},
      {"cuMemAddressReserve", [&] { return AddressRange::Reserve(driver(), granularity(), 0).ok(); }},
      {"cuMemMap", [&] { return Mapping::Map(driver(), range.address(), memory).ok(); }},
      {"cuEventCreate", [&] { return Event::Create(driver()).ok(); }},
      {"cuDevicePrimaryCtxRetain", [&] { return PrimaryContext::Retain(driver(), 0).ok(); }},
  };
  for (const auto& [call, make] : makes) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(make()) << call;
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
    ExpectFailure(memory.Release(), StatusCode::kDriverError, "cuMemRelease of 2 MiB failed");
  }
  EXPECT_FALSE(memory.valid());
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);  // releases what the fault kept
}

TEST_F(Handles, LogFailuresInDestructors) {
  EXPECT_NE(ReleasedWith(CUDA_ERROR_UNKNOWN).find("cuMemRelease"), std::string::npos);
}

TEST_F(Handles, AreSilentWhereTheDriverIsGoneAlready) { EXPECT_EQ(ReleasedWith(CUDA_ERROR_DEINITIALIZED), ""); }

TEST_F(Handles, CallNothingOnceTheyAreAbandoned) {
  const uint64_t released = CallCount("cuMemRelease");
  CUmemGenericAllocationHandle handle = 0;
  {
    PhysicalMemory memory = MakeMemory();
    handle = memory.get();
    memory.Abandon();
  }
  EXPECT_EQ(CallCount("cuMemRelease"), released);
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Handles, AContextGuardPutsTheContextBack) {
  const PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  const auto current = [&] { return testing::Get(cuda().cuCtxGetCurrent); };
  const ContextGuard of_the_test(driver());
  for (CUcontext const before : {context(), CUcontext{nullptr}}) {
    EXPECT_EQ(cuda().cuCtxSetCurrent(before), CUDA_SUCCESS);
    {
      const ContextGuard outer(driver(), other);
      EXPECT_EQ(current(), other.get());
      {
        const ContextGuard keeper(driver());
        EXPECT_EQ(cuda().cuCtxSetCurrent(context()), CUDA_SUCCESS);
      }
      EXPECT_EQ(current(), other.get());
    }
    EXPECT_EQ(current(), before);
  }
}

class GraphHandles : public testing::Capturing<testing::ConformanceTest> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("faults are injected"); }

  static void Fulfil(void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); }
  UserObject Make() { return UserObject::Create(driver(), &Fulfil, &ended_).value(); }
  // Captures, replays twice, and forgets a launch that adds one to the memory.
  void ExpectReplays(const Driver& other) {
    constexpr uint64_t kBytes = 4096;
    const CUdeviceptr memory = Allocate(kBytes);
    FillAndWait(memory, 1, kBytes);
    const CUstream stream = BeginOnNewStream();
    testing::AddOne(other, memory, memory, kBytes, stream);
    const CUgraph graph = End(stream);
    const CUgraphExec executable = Instantiate(graph);
    for (int round = 0; round < 2; ++round) ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(memory, kBytes), std::vector<uint8_t>(kBytes, 3));
    EXPECT_EQ(Destroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(Destroy(graph), CUDA_SUCCESS);
  }

  std::promise<void> ended_;
};

TEST_F(GraphHandles, AUserObjectReleasesItsReference) {
  {
    UserObject first = Make();
    const UserObject second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT: the test is about the moved-from handle
    EXPECT_TRUE(second.valid());
  }
  ended_.get_future().wait();
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMadeEndsNothing) {
  const InjectedFault fault({.call = "cuUserObjectCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(UserObject::Create(driver(), &Fulfil, nullptr).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMovedIsKept) {
  UserObject object = Make();
  EXPECT_FALSE(object.MoveTo(nullptr).ok());
  EXPECT_TRUE(object.valid());
  EXPECT_TRUE(object.Release().ok());
  EXPECT_EQ(object.MoveTo(nullptr).code(), StatusCode::kInvalidArgument) << "it is empty";
  ended_.get_future().wait();
}

TEST_F(GraphHandles, TheGraphInCaptureIsFoundWhereThereIsOne) {
  EXPECT_EQ(GraphInCapture(driver(), MakeStream()).value(), nullptr);
  const CUstream stream = BeginOnNewStream();
  EXPECT_NE(GraphInCapture(driver(), stream).value(), nullptr);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_FALSE(GraphInCapture(driver(), stream).ok()) << "the capture is broken";
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphHandles, ARelaxedScopeAllowsWhatTheCaptureForbids) {
  const CUevent event = MakeEvent();
  const CUstream stream = BeginOnNewStream();
  {
    const RelaxedCapture relaxed(driver());
    const RelaxedCapture nested(driver());
    EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << "the mode is as before";
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphHandles, ALaunchIsReplayed) { ExpectReplays(driver()); }

TEST_F(GraphHandles, ALaunchIsReplayedAsOnARealDevice) {
  AllowLeak("pinned host memory");  // the next launch would free it
  Driver staged;
  staged.cuda = driver().cuda;
  ExpectReplays(staged);
}

TEST_F(GraphHandles, ALaunchThatCannotBeCapturedLeavesNothing) {
  const CUdeviceptr memory = Allocate(4096);
  const auto nothing = [](const std::vector<const void*>&, const std::vector<void*>&) {};
  const CUstream stream = BeginOnNewStream();
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject", "commpoolEmulatorLaunch"}) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(Launch(driver(), stream, {{memory, 16}}, {}, nothing).ok()) << call;
  }
  EXPECT_EQ(Destroy(End(stream)), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal
