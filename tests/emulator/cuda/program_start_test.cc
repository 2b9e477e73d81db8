// The emulator at a program's start and end: a wrong description ends the program, and its end can list leaks.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

// Each runs in a new process that has not used the driver.
class ProgramDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  [[noreturn]] static void Run(const char* description, int context_releases) {
    DeclareMachine(description);
    CUcontext context = nullptr;
    SharedDriver()->cuda.cuDevicePrimaryCtxRetain(&context, 0);
    for (int release = 0; release < context_releases; ++release) SharedDriver()->cuda.cuDevicePrimaryCtxRelease(0);
    std::fprintf(stderr, "the program is over\n");
    std::exit(0);
  }
};

TEST_F(ProgramDeathTest, AMachineThatCannotBeReadIsNoOtherMachine) {
  EXPECT_EXIT(Run("devices=0", 1), ::testing::ExitedWithCode(2), "devices=0 is not a number from 1 to 64");
  EXPECT_EXIT(Run("gpus=2", 1), ::testing::ExitedWithCode(2), "the keys are machine, devices, memory");
}

TEST_F(ProgramDeathTest, ALimitOfFileSizesIsNoLimitOfMemory) {
  const auto run_limited = [] {
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &limit);
    Run("", 1);
  };
  EXPECT_EXIT(run_limited(), ::testing::ExitedWithCode(0), "the program is over\n$");
}

TEST_F(ProgramDeathTest, LeaksArePrintedAtExitOnRequest) {
  EXPECT_EXIT(Run("report=exit", 0), ::testing::ExitedWithCode(0), "left at exit:\nprimary context of device 0");
}

TEST_F(ProgramDeathTest, NothingIsPrintedByAFork) {
  const auto run_in_fork = [] {
    DeclareMachine("report=exit");
    SharedDriver();
    if (fork() == 0) Run("report=exit", 0);
    wait(nullptr);
    _exit(0);
  };
  EXPECT_EXIT(run_in_fork(), ::testing::ExitedWithCode(0), "the program is over\n$");
}

TEST_F(ProgramDeathTest, NothingIsPrintedWhereNothingIsLeft) {
  EXPECT_EXIT(Run("report=exit", 1), ::testing::ExitedWithCode(0), "the program is over\n$");
}

TEST_F(ProgramDeathTest, NothingIsPrintedWhereNobodyAsked) {
  EXPECT_EXIT(Run("", 0), ::testing::ExitedWithCode(0), "the program is over\n$");
}

}  // namespace
}  // namespace commpool::internal::testing
