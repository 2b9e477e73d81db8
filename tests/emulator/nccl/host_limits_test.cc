// The emulator in a process with few descriptors or little address space: its calls fail, and the process goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "src/library/driver/loader.h"

namespace commpool::internal {
namespace {

enum Answer { kServed = 10, kRefused = 11 };

// Uses everything for which the emulator makes files, mappings and threads.
Answer UseTheEmulator() {
  LoaderOptions options = LoaderOptionsFromEnvironment(DriverChoice::kEmulated).value();
  options.choice = DriverChoice::kEmulated;
  const Result<std::shared_ptr<const Driver>> driver = LoadDriver(options);
  if (!driver.ok()) return kRefused;
  const CudaDriver& cuda = (*driver)->cuda;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  constexpr size_t kBytes = size_t{8} << 20;
  if (cuda.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return kRefused;
  if (cuda.cuCtxSetCurrent(context) != CUDA_SUCCESS) return kRefused;
  if (cuda.cuMemAlloc(&memory, kBytes) != CUDA_SUCCESS) return kRefused;
  if (cuda.cuMemsetD8Async(memory, 1, kBytes, nullptr) != CUDA_SUCCESS) return kRefused;
  if (cuda.cuCtxSynchronize() != CUDA_SUCCESS) return kRefused;
  std::array<ncclComm_t, 2> communicators = {};
  const ncclResult_t made = (*driver)->nccl.ncclCommInitAll(communicators.data(), 2, nullptr);
  return made == ncclSuccess ? kServed : kRefused;
}

// The result of using the emulator in a process under a limit: an Answer; negative for a signal.
int UseUnder(int resource, rlim_t limit) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limits = {};
    getrlimit(resource, &limits);
    limits.rlim_cur = limit;
    setrlimit(resource, &limits);
    std::_Exit(UseTheEmulator());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class HostLimits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=2,memory=64MiB,nccl_timeout_ms=500", 1); }

  void SeeAnswers(int resource, rlim_t least, rlim_t most, rlim_t step) {
    for (rlim_t limit = least; limit <= most; limit += step) {
      const int answer = UseUnder(resource, limit);
      EXPECT_TRUE(answer == kServed || answer == kRefused) << "a limit of " << limit << " ends with " << answer;
      ++answers_[answer == kServed];
    }
    EXPECT_GT(answers_[0], 0) << "no limit was too tight";
    EXPECT_EQ(UseUnder(resource, RLIM_INFINITY), kServed);
  }

  std::array<int, 2> answers_ = {};  // refused, served
};

TEST_F(HostLimits, OfDescriptorsAreAnsweredWithAStatus) { SeeAnswers(RLIMIT_NOFILE, 3, 20, 1); }

TEST_F(HostLimits, OfAddressSpaceAreAnsweredWithAStatus) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves more address space than any limit leaves";
#endif
  constexpr rlim_t kMiB = rlim_t{1} << 20;
  SeeAnswers(RLIMIT_AS, 32 * kMiB, 512 * kMiB, 32 * kMiB);
}

}  // namespace
}  // namespace commpool::internal
