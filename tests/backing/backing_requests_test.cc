// Requests that cannot be served are refused with the reason. A user's functions: their arguments, and everything that
// may go wrong in them.
#include <new>
#include <stdexcept>
#include <utility>

#include "src/library/driver/device_info.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr BackingKind kKinds[] = {BackingKind::kVmm, BackingKind::kCuda, BackingKind::kNccl, BackingKind::kUser};

class BackingFactory : public BackingTest {
 protected:
  static BackingRequest Request(BackingKind kind, const Placement& placement) {
    return {.kind = kind, .placement = placement, .user = WorkingUserAllocator()};
  }
  // Expects a refusal with `code` that contains `part`, before anything was made.
  static void ExpectRefused(const Driver& driver, BackingKind kind, const Placement& placement, StatusCode code,
                            const std::string& part) {
    const std::vector<std::string> before = EmulatorLeaks();
    const uint64_t contexts = CallCount("cuDevicePrimaryCtxRetain");
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, Name(kind));
    ExpectFailure(MakeBacking(driver, Request(kind, placement)).status(), code, part);
    EXPECT_EQ(EmulatorLeaks(), before);
    EXPECT_EQ(CallCount("cuDevicePrimaryCtxRetain"), contexts);
  }
};

TEST_F(BackingFactory, RefusesAnUnknownDeviceAndNamesTheirNumber) {
  for (const BackingKind kind : kKinds) {
    for (const int device : {-1, DeviceCountOfTests()}) {
      ExpectRefused(driver(), kind, OnDevice(device), StatusCode::kInvalidArgument,
                    "this process sees " + std::to_string(DeviceCountOfTests()));
    }
  }
}

TEST_F(BackingFactory, MakesHostMemoryWithVmmOnly) {
  for (const BackingKind kind : {BackingKind::kCuda, BackingKind::kNccl, BackingKind::kUser}) {
    ExpectRefused(driver(), kind, OnHost(), StatusCode::kInvalidArgument, "needs one of vmm, pinned");
  }
}

TEST_F(BackingFactory, RefusesAnUnknownNumaNode) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no memory of host NUMA nodes";
  ExpectFailure(MakeBacking(driver(), Request(BackingKind::kVmm, OnHost(63))).status(), StatusCode::kInvalidArgument,
                "no host NUMA node 63");
  ExpectRefused(driver(), BackingKind::kVmm, OnHost(-2), StatusCode::kInvalidArgument, "no host NUMA node -2");
}

TEST_F(BackingFactory, RefusesANumaNodeForDeviceMemory) {
  for (const BackingKind kind : kKinds) {
    ExpectRefused(driver(), kind, {.numa_node = 0}, StatusCode::kInvalidArgument, "was named for device memory");
  }
}

TEST_F(BackingFactory, NeedsVirtualMemoryForVmm) {
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  ExpectRefused(driver, BackingKind::kVmm, OnDevice(), StatusCode::kNotSupported, "virtual memory management");
  EXPECT_TRUE(MakeBacking(driver, Request(BackingKind::kCuda, OnDevice())).ok());
}

TEST_F(BackingFactory, NeedsNcclForNccl) {
  Driver without = driver();
  without.nccl = {};
  without.nccl.why_missing = "libnccl.so.2 was not found";
  ExpectRefused(without, BackingKind::kNccl, OnDevice(), StatusCode::kNotSupported, "libnccl.so.2 was not found");
  const std::unique_ptr<Backing> backing = MakeBacking(without, Request(BackingKind::kVmm, OnDevice())).value();
  EXPECT_FALSE(backing->CanRegisterLocal().ok());
  EXPECT_FALSE(backing->CanRegisterWindow().ok());
}

TEST_F(BackingFactory, NamesTheVersionOfAnNcclThatIsTooOld) {
  Driver old = driver();
  old.nccl.version = 21805;
  old.nccl.ncclMemAlloc = nullptr;
  old.nccl.ncclMemFree = nullptr;
  ExpectRefused(old, BackingKind::kNccl, OnDevice(), StatusCode::kNotSupported, "2.18.5");
}

TEST_F(BackingFactory, ListsTheRegistrationsOfEachBacking) {
  COMMPOOL_REQUIRE_NCCL();
  if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
  for (const BackingKind kind : kKinds) {
    const std::unique_ptr<Backing> backing = MakeBacking(driver(), Request(kind, OnDevice())).value();
    EXPECT_TRUE(backing->CanRegisterLocal().ok()) << Name(kind);
    const Status window = backing->CanRegisterWindow();
    EXPECT_EQ(window.ok(), kind == BackingKind::kVmm || kind == BackingKind::kNccl)
        << Name(kind) << ": " << window.message();
  }
}

TEST_F(BackingFactory, RefusesAnUnknownKind) {
  const auto kind = static_cast<BackingKind>(17);
  EXPECT_EQ(MakeBacking(driver(), {.kind = kind}).status().code(), StatusCode::kNotSupported);
  EXPECT_STREQ(Name(kind), "unknown");
}

// A function that returns what its context says.
void* ReturnContext(ptrdiff_t, int, CUstream_st*, void* context) { return context; }
int frees = 0;
void CountFrees(void*, ptrdiff_t, int, CUstream_st*, void*) { ++frees; }

class UserFunctions : public BackingTest {
 protected:
  std::unique_ptr<Backing> MakeUser(const UserAllocator& user) {
    return Make({.kind = BackingKind::kUser, .user = user});
  }
  // The error of making a segment of 2 MiB.
  Status FailureOf(const UserAllocator& user) { return MakeUser(user)->Make({.bytes = 1}).status(); }
  Status FailureOfReturning(CUdeviceptr address) {
    return FailureOf({ReturnContext, CountFrees, reinterpret_cast<void*>(address)});
  }
};

TEST_F(UserFunctions, ArePassedBytesDeviceANullStreamAndTheirContext) {
  int context = 0;
  UserAllocator user = WorkingUserAllocator();
  user.context = &context;
  std::unique_ptr<Segment> segment = MakeUser(user)->Make({.bytes = 1}).value();
  const UserCall allocation = LastUserCall();
  ASSERT_TRUE(segment->Release().ok());
  for (const UserCall& call : {allocation, LastUserCall()}) {
    EXPECT_EQ(call.bytes, ptrdiff_t{2} << 20);
    EXPECT_EQ(call.device, 0);
    EXPECT_EQ(call.stream, nullptr);
    EXPECT_EQ(call.context, &context);
  }
}

TEST_F(UserFunctions, AreToldTheStreamThatTheMemoryIsFor) {
  const CurrentContext context;
  const TestStream stream;
  std::unique_ptr<Segment> segment = MakeUser(WorkingUserAllocator())->Make({.bytes = 1, .stream = stream}).value();
  EXPECT_EQ(LastUserCall().stream, stream);
  ASSERT_TRUE(segment->Release().ok());
  EXPECT_EQ(LastUserCall().stream, nullptr) << "whoever frees has waited for the device";
}

// The segment's maker may use another stream, so a caller must wait for that stream.
TEST_F(UserFunctions, MayOrderTheMemoryBehindTheStream) {
  const CurrentContext context;
  const TestStream made_on;
  const TestStream used_on;
  UserAllocator user = WorkingUserAllocator();
  user.allocate = [](ptrdiff_t bytes, int, CUstream_st* stream, void*) -> void* {
    CUdeviceptr address = 0;
    const CUresult result = SharedDriver()->cuda.cuMemAllocAsync(&address, static_cast<size_t>(bytes), stream);
    return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
  };
  std::unique_ptr<Segment> segment = MakeUser(user)->Make({.bytes = 1, .stream = made_on}).value();
  Event made = Event::Create(driver()).value();
  ASSERT_EQ(cuda().cuEventRecord(made.get(), made_on), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(used_on, made.get(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemsetD8Async(segment->address(), 0x42, 4096, used_on), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(used_on), CUDA_SUCCESS);
  EXPECT_EQ(Read(0, segment->address(), 4096), std::vector<uint8_t>(4096, 0x42));
}

TEST_F(UserFunctions, AreBothNeeded) {
  const UserAllocator both = WorkingUserAllocator();
  for (const auto& [user, missing] : {std::pair(UserAllocator{nullptr, both.free, nullptr}, "user_allocate is null"),
                                      std::pair(UserAllocator{both.allocate, nullptr, nullptr}, "user_free is null")}) {
    ExpectFailure(MakeBacking(driver(), {.kind = BackingKind::kUser, .user = user}).status(),
                  StatusCode::kInvalidArgument, missing);
  }
}

TEST_F(UserFunctions, ReturnNullForOutOfMemory) {
  ExpectFailure(FailureOfReturning(0), StatusCode::kOutOfMemory, "2 MiB on device 0");
}

TEST_F(UserFunctions, ThrowNothingPastTheBacking) {
  const auto allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw std::runtime_error("no luck"); };
  ExpectFailure(FailureOf({allocate, CountFrees, nullptr}), StatusCode::kInvalidArgument, "no luck");

  const auto throw_number = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw 7; };
  EXPECT_EQ(FailureOf({throw_number, CountFrees, nullptr}).code(), StatusCode::kInvalidArgument);
}

TEST_F(UserFunctions, ThatThrowBadAllocAreOutOfMemory) {
  const auto allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw std::bad_alloc(); };
  EXPECT_EQ(FailureOf({allocate, CountFrees, nullptr}).code(), StatusCode::kOutOfMemory);
}

TEST_F(UserFunctions, ThatThrowInFreeAreReportedByFree) {
  UserAllocator user = WorkingUserAllocator();
  user.free = [](void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
    throw std::runtime_error("no luck");
  };
  std::unique_ptr<Backing> backing = MakeUser(user);
  ExpectFailure(backing->Make({.bytes = 1}).value()->Release(), StatusCode::kInvalidArgument, "free function");
  backing->Make({.bytes = 1}).value().reset();  // logs the failure
}

TEST_F(UserFunctions, ReturnMemoryOfTheDriver) {
  alignas(4096) static char somewhere[4096];
  const int frees_before = frees;
  ExpectFailure(FailureOf({ReturnContext, CountFrees, somewhere}), StatusCode::kInvalidArgument, "does not know");
  EXPECT_EQ(frees, frees_before + 1) << "the user gets back what it made";
}

TEST_F(UserFunctions, ReturnMemoryOfTheRightDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  std::unique_ptr<Segment> foreign =
      Make({.kind = BackingKind::kCuda, .placement = OnDevice(1)})->Make({.bytes = 1}).value();
  ExpectFailure(FailureOfReturning(foreign->address()), StatusCode::kInvalidArgument, "memory of device 1");
}

TEST_F(UserFunctions, ReturnAlignedMemory) {
  std::unique_ptr<Segment> memory = Make({.kind = BackingKind::kCuda})->Make({.bytes = 1}).value();
  ExpectFailure(FailureOfReturning(memory->address() + 256), StatusCode::kInvalidArgument, "aligned to 512");
}

TEST_F(UserFunctions, MayReturnPinnedHostMemory) {
  const CurrentContext context;
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, size_t{2} << 20), CUDA_SUCCESS);
  EXPECT_TRUE(MakeUser({ReturnContext, CountFrees, pinned})->Make({.bytes = 1}).ok());
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(UserFunctions, AreNotAskedForMoreThanTheirTypeHolds) {
  LastUserCall() = {};
  Status status = MakeUser(WorkingUserAllocator())->Make({.bytes = uint64_t{1} << 63}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(LastUserCall().bytes, 0);
}

TEST_F(UserFunctions, MayChangeTheCurrentDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  static CUcontext other = nullptr;
  PrimaryContext context = PrimaryContext::Retain(driver(), 1).value();
  other = context.get();
  UserAllocator user = WorkingUserAllocator();
  user.allocate = [](ptrdiff_t bytes, int device, CUstream_st* stream, void* mine) {
    void* pointer = WorkingUserAllocator().allocate(bytes, device, stream, mine);
    SharedDriver()->cuda.cuCtxSetCurrent(other);
    return pointer;
  };
  ContextGuard guard(driver(), nullptr);
  EXPECT_TRUE(MakeUser(user)->Make({.bytes = 1}).ok());
  CUcontext current = other;
  cuda().cuCtxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
}

}  // namespace
}  // namespace commpool::internal::testing
