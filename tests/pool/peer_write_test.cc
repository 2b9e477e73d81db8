// What becomes of a write by a peer that was granted to read alone, and of its process: by a memset, a copy and a
// kernel. Each is tried in a process of its own, for on hardware a refused write may cost a context. It prints what the
// driver said.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/pool/pool_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 4096;
constexpr uint8_t kValue = 0x75;

constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry write_byte(.param .u64 place)
{
  .reg .b16 %value;
  .reg .b64 %at;
  ld.param.u64 %at, [place];
  mov.u16 %value, 1;
  st.global.u8 [%at], %value;
  ret;
}
)";

enum class Way { kMemset, kCopy, kKernel };

struct Outcome {
  StatusCode made = StatusCode::kInternal;  // the pool; kNotSupported where the machine has no such peer
  bool peer_read = false;                   // what the pool's device had written, before the write
  CUresult submitted = CUDA_ERROR_UNKNOWN;
  CUresult synchronised = CUDA_ERROR_UNKNOWN;  // the peer's context, afterwards
  CUresult read_back = CUDA_ERROR_UNKNOWN;     // by the pool's own device
  bool intact = false;
};

// The driver that the tests have opened: the library calls none of these.
template <typename Function>
Function* Find(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

CUresult RunKernel(CUdeviceptr place) {
  if (OnEmulator()) {  // it loads no modules
    const auto write_byte = [](const auto&, const std::vector<void*>& writes) { std::memset(writes[0], 1, 1); };
    return Launch(*SharedDriver(), nullptr, {}, {{place, 1}}, write_byte).ok() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  }
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUresult result = Find<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, kPtx);
  if (result == CUDA_SUCCESS) {
    result = Find<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, "write_byte");
  }
  if (result != CUDA_SUCCESS) return result;
  void* parameters[] = {&place};
  return Find<decltype(cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
}

CUresult Write(const CudaDriver& cuda, Way way, CUdeviceptr place, CUdeviceptr own) {
  if (way == Way::kMemset) return cuda.cuMemsetD8Async(place, 1, kBytes, nullptr);
  return way == Way::kCopy ? cuda.cuMemcpyDtoDAsync(place, own, kBytes, nullptr) : RunKernel(place);
}

bool HoldsValue(const std::array<uint8_t, kBytes>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == kValue; });
}

// Ends the process as it is: nothing here may be released in order once a context is lost.
[[noreturn]] void End(int pipe, const Outcome& outcome) {
  _exit(write(pipe, &outcome, sizeof(outcome)) == sizeof(outcome) ? 0 : 1);
}

[[noreturn]] void Live(Way way, int pipe) {
  Outcome outcome;
  const CudaDriver& cuda = SharedDriver()->cuda;
  const PrimaryContext owner = PrimaryContext::Retain(*SharedDriver(), 0).value();
  const ContextGuard current(*SharedDriver(), owner);
  Runtime runtime(SharedDriver());
  PoolConfiguration configuration;
  configuration.backing.grants = Grants::kRead;
  configuration.peers = {1};
  const Result<PoolHandle> pool = runtime.CreatePool(configuration);
  outcome.made = pool.status().code();
  if (!pool.ok()) End(pipe, outcome);
  const CUdeviceptr block = runtime.AllocateFrom(*pool, kBytes, nullptr).value();
  std::array<uint8_t, kBytes> bytes = {};
  static_cast<void>(cuda.cuMemsetD8Async(block, kValue, kBytes, nullptr));
  static_cast<void>(cuda.cuCtxSynchronize());

  const PrimaryContext context = PrimaryContext::Retain(*SharedDriver(), 1).value();
  const ContextGuard peer(*SharedDriver(), context);
  CUdeviceptr own = 0;
  if (cuda.cuMemAlloc(&own, kBytes) != CUDA_SUCCESS) End(pipe, outcome);
  const bool copied = cuda.cuMemcpyDtoDAsync(own, block, kBytes, nullptr) == CUDA_SUCCESS &&
                      cuda.cuMemcpyDtoH(bytes.data(), own, kBytes) == CUDA_SUCCESS;
  outcome.peer_read = copied && HoldsValue(bytes);
  static_cast<void>(cuda.cuMemsetD8Async(own, 1, kBytes, nullptr));
  outcome.submitted = Write(cuda, way, block, own);
  outcome.synchronised = cuda.cuCtxSynchronize();

  const ContextGuard owner_again(*SharedDriver(), owner);
  outcome.read_back = cuda.cuMemcpyDtoH(bytes.data(), block, kBytes);
  outcome.intact = HoldsValue(bytes);
  End(pipe, outcome);
}

struct Case {
  const char* name;
  Way way;
};

class PeerWrite : public ::testing::TestWithParam<Case> {};

// This process opens no driver: a driver does not survive a fork.
TEST_P(PeerWrite, FailsAndLeavesTheMemoryAsItWas) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) Live(GetParam().way, ends[1]);
  close(ends[1]);
  Outcome outcome;
  const ssize_t told = read(ends[0], &outcome, sizeof(outcome));
  close(ends[0]);
  int state = -1;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_EQ(told, static_cast<ssize_t>(sizeof(outcome))) << "its process ended with " << state;
  if (outcome.made == StatusCode::kNotSupported) GTEST_SKIP() << "no device 1 that reaches device 0's memory";
  ASSERT_EQ(outcome.made, StatusCode::kOk);
  std::printf("a %s by the peer: submitted with %d, synchronised with %d; the owner then reads with %d, memory %s\n",
              GetParam().name, outcome.submitted, outcome.synchronised, outcome.read_back,
              outcome.intact ? "intact" : "changed or not read");
  EXPECT_TRUE(outcome.peer_read);
  EXPECT_TRUE(outcome.submitted != CUDA_SUCCESS || outcome.synchronised != CUDA_SUCCESS) << "the write was accepted";
  EXPECT_TRUE(outcome.intact || outcome.read_back != CUDA_SUCCESS) << "the memory was changed";
}

INSTANTIATE_TEST_SUITE_P(Ways, PeerWrite,
                         ::testing::Values(Case{"memset", Way::kMemset}, Case{"copy", Way::kCopy},
                                           Case{"kernel", Way::kKernel}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace commpool::internal::testing
