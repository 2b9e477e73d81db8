// Places are devices by their primary contexts: the driver is asked once for each stream of a program, and a default
// stream's handle means the current device's stream.
#include "src/library/stream/stream_places.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class Places : public DriverTest {
 protected:
  const CudaDriver& cuda() const { return driver().cuda; }
  CUstream MakeStream(CUcontext context) {
    const ContextGuard guard(driver(), context);
    CUstream stream = nullptr;
    EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }

  const PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  StreamPlaces places_{driver()};
};

TEST_F(Places, OfDefaultStreamsAreTheCurrentDevice) {
  const ContextGuard guard(driver(), context_);
  EXPECT_EQ(places_.Current().value(), std::optional<int>(0));
}

TEST_F(Places, AreNoneWithoutAContext) {
  std::optional<int> current = 7;
  const uint64_t calls = CallCount("cuCtxGetDevice");
  std::thread([&] { current = places_.Current().value(); }).join();
  EXPECT_EQ(current, std::nullopt);
  EXPECT_EQ(CallCount("cuCtxGetDevice"), calls) << "it fails without a context, and sanitizers report what fails";
}

TEST_F(Places, AreKnownByTheirContextsAfterTheFirstQuestion) {
  const ContextGuard guard(driver(), context_);
  ASSERT_TRUE(places_.Current().ok());
  const uint64_t calls = CallCount("cuCtxGetDevice");
  ASSERT_TRUE(places_.Current().ok());
  ExpectCalls("cuCtxGetDevice", calls, 0);
}

TEST_F(Places, OfAStreamOfAnotherDeviceIsFoundAndTheCurrentOneKept) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const CUstream stream = MakeStream(far.get());
  const ContextGuard guard(driver(), context_);
  EXPECT_EQ(places_.OfStream(stream).value(), 1);
  EXPECT_EQ(places_.Current().value(), std::optional<int>(0));
  EXPECT_EQ(places_.At(1).device(), 1);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(Places, AThreadWithoutAContextFindsAStreamsDeviceAndStaysWithout) {
  const CUstream stream = MakeStream(context_.get());
  int device = -1;
  CUcontext current = nullptr;
  std::thread([&] {
    device = places_.OfStream(stream).value();
    EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(Places, ADriverThatAnswersOnlyWithAContextIsAskedWithOne) {
  Driver strict = driver();
  strict.cuda.cuStreamGetCtx = [](CUstream stream, CUcontext* context) {
    CUcontext current = nullptr;
    SharedDriver()->cuda.cuCtxGetCurrent(&current);
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return SharedDriver()->cuda.cuStreamGetCtx(stream, context);
  };
  StreamPlaces places(strict);
  const CUstream stream = MakeStream(context_.get());
  Result<int> device = Status(StatusCode::kInternal, "not asked");
  std::thread([&] { device = places.OfStream(stream); }).join();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(*device, 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

// A stream's context that is no device's primary one: the driver's answer is made up, for few programs make such.
TEST_F(Places, OfOtherContextsThanPrimaryOnesAreNotSupported) {
  static CUcontext other;
  Driver strange = driver();
  strange.cuda.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = other, CUDA_SUCCESS; };
  strange.cuda.cuCtxSetCurrent = [](CUcontext context) {
    return context == other ? CUDA_SUCCESS : SharedDriver()->cuda.cuCtxSetCurrent(context);
  };
  strange.cuda.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  other = reinterpret_cast<CUcontext>(uintptr_t{0x1230});
  StreamPlaces places(strange);
  const ContextGuard guard(driver(), context_);
  const Status refused = places.OfStream(reinterpret_cast<CUstream>(uintptr_t{0x1000})).status();
  EXPECT_EQ(refused.code(), StatusCode::kNotSupported);
  EXPECT_NE(refused.message().find("while the primary context is current"), std::string::npos) << refused.message();
}

TEST_F(Places, WhoseQuestionsFailNameTheCallAndAreAskedAgain) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const CUstream stream = MakeStream(context_.get());
  const ContextGuard guard(driver(), context_);
  for (const char* call : {"cuCtxGetCurrent", "cuStreamGetCtx", "cuCtxGetDevice", "cuDevicePrimaryCtxRetain"}) {
    // The guard that puts the context back asks for it first.
    const int skip = call == std::string("cuCtxGetCurrent") ? 1 : 0;
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN, .skip = skip});
    const Result<int> device = places_.OfStream(stream);
    EXPECT_NE(device.status().message().find(call), std::string::npos) << call << ": " << device.status().message();
  }
  EXPECT_EQ(places_.OfStream(stream).value(), 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
