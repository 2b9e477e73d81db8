// A user's functions: their arguments, and everything that may go wrong in them.
#include <new>
#include <stdexcept>
#include <utility>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class UserFunctions : public BackingTest {
 protected:
  std::unique_ptr<Backing> MakeUser(const UserAllocator& user) {
    return Make({.kind = BackingKind::kUser, .user = user});
  }
  // The error of making a segment of 2 MiB.
  Status FailureOf(const UserAllocator& user) { return MakeUser(user)->Make({.bytes = 1}).status(); }
};

// A function that returns what its context says.
void* ReturnContext(ptrdiff_t, int, CUstream_st*, void* context) { return context; }
int frees = 0;
void CountFrees(void*, ptrdiff_t, int, CUstream_st*, void*) { ++frees; }

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
  PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard guard(driver(), context);
  CUstream stream = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::unique_ptr<Segment> segment = MakeUser(WorkingUserAllocator())->Make({.bytes = 1, .stream = stream}).value();
  EXPECT_EQ(LastUserCall().stream, stream);
  ASSERT_TRUE(segment->Release().ok());
  EXPECT_EQ(LastUserCall().stream, nullptr) << "whoever frees has waited for the device";
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

// The segment's maker may use another stream, so a caller must wait for that stream.
TEST_F(UserFunctions, MayOrderTheMemoryBehindTheStream) {
  PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard guard(driver(), context);
  CUstream made_on = nullptr;
  CUstream used_on = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&made_on, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamCreate(&used_on, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  UserAllocator user = WorkingUserAllocator();
  user.allocate = [](ptrdiff_t bytes, int, CUstream_st* stream, void*) -> void* {
    CUdeviceptr address = 0;
    const CUresult result = SharedDriver()->cuda.cuMemAllocAsync(&address, static_cast<size_t>(bytes), stream);
    return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
  };
  {
    std::unique_ptr<Segment> segment = MakeUser(user)->Make({.bytes = 1, .stream = made_on}).value();
    Event made = Event::Create(driver()).value();
    ASSERT_EQ(cuda().cuEventRecord(made.get(), made_on), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamWaitEvent(used_on, made.get(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemsetD8Async(segment->address(), 0x42, 4096, used_on), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamSynchronize(used_on), CUDA_SUCCESS);
    EXPECT_EQ(Read(0, segment->address(), 4096), std::vector<uint8_t>(4096, 0x42));
  }
  EXPECT_EQ(cuda().cuStreamDestroy(made_on), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(used_on), CUDA_SUCCESS);
}

TEST_F(UserFunctions, AreBothNeeded) {
  UserAllocator no_allocate = WorkingUserAllocator();
  no_allocate.allocate = nullptr;
  UserAllocator no_free = WorkingUserAllocator();
  no_free.free = nullptr;
  for (const auto& [user, missing] :
       {std::pair(no_allocate, "user_allocate is null"), std::pair(no_free, "user_free is null")}) {
    Status status = MakeBacking(driver(), {.kind = BackingKind::kUser, .user = user}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(missing), std::string::npos) << status.message();
  }
}

TEST_F(UserFunctions, ReturnNullForOutOfMemory) {
  Status status = FailureOf({ReturnContext, CountFrees, nullptr});
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("2 MiB on device 0"), std::string::npos) << status.message();
}

TEST_F(UserFunctions, ThrowNothingPastTheBacking) {
  const auto allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw std::runtime_error("no luck"); };
  Status status = FailureOf({allocate, CountFrees, nullptr});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("no luck"), std::string::npos) << status.message();

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
  Status status = backing->Make({.bytes = 1}).value()->Release();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("free function"), std::string::npos) << status.message();
  backing->Make({.bytes = 1}).value().reset();  // logs the failure
}

TEST_F(UserFunctions, ReturnMemoryOfTheDriver) {
  alignas(4096) static char somewhere[4096];
  const int frees_before = frees;
  Status status = FailureOf({ReturnContext, CountFrees, somewhere});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("does not know"), std::string::npos) << status.message();
  EXPECT_EQ(frees, frees_before + 1) << "the user gets back what it made";
}

TEST_F(UserFunctions, ReturnMemoryOfTheRightDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  std::unique_ptr<Segment> foreign =
      Make({.kind = BackingKind::kCuda, .placement = OnDevice(1)})->Make({.bytes = 1}).value();
  Status status = FailureOf({ReturnContext, CountFrees, reinterpret_cast<void*>(foreign->address())});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("memory of device 1"), std::string::npos) << status.message();
}

TEST_F(UserFunctions, ReturnAlignedMemory) {
  std::unique_ptr<Segment> memory = Make({.kind = BackingKind::kCuda})->Make({.bytes = 1}).value();
  Status status = FailureOf({ReturnContext, CountFrees, reinterpret_cast<void*>(memory->address() + 256)});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("aligned to 512"), std::string::npos) << status.message();
}

TEST_F(UserFunctions, MayReturnPinnedHostMemory) {
  PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard guard(driver(), context);
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
