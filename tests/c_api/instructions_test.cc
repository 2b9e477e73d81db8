// Counts the instructions of an allocation that no scope catches: a parent steps a child through the call one by one.
// Every build optimises the library's file with this function.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "tests/c_api/c_abi.h"

#if defined(__x86_64__)
#include <sys/user.h>

namespace commpool::internal::testing {
namespace {

// A message from the child to its parent.
constexpr int kNotTraced = 3;

// The library's function (not this program's stub), the measured call, and its expected result.
struct Measured {
  const void* function;
  void (*call)();
};

user_regs_struct RegistersOf(pid_t child) {
  user_regs_struct registers = {};
  ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  return registers;
}

// Counts the instructions from the function's first one until the call returns to its caller; -1 where tracing is
// forbidden.
int InstructionsOf(const Measured& measured) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
    measured.call();  // the first call binds the symbol
    raise(SIGSTOP);
    measured.call();
    raise(SIGSTOP);
    _exit(0);
  }
  int state = 0;
  if (waitpid(child, &state, 0) != child || !WIFSTOPPED(state)) return -1;
  const auto start = reinterpret_cast<uint64_t>(measured.function);
  int instructions = 0;
  uint64_t caller = 0;  // where the function returns to
  for (;;) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) return -1;
    if (waitpid(child, &state, 0) != child || !WIFSTOPPED(state)) return -1;
    if (WSTOPSIG(state) == SIGSTOP) break;  // the call has returned
    const user_regs_struct registers = RegistersOf(child);
    if (registers.rip == start) {
      caller = static_cast<uint64_t>(ptrace(PTRACE_PEEKDATA, child, registers.rsp, nullptr));
    }
    if (registers.rip == caller) caller = 0;
    if (caller != 0) ++instructions;
  }
  kill(child, SIGKILL);
  waitpid(child, &state, 0);
  return instructions;
}

void AllocateInScope() {
  void* pointer = nullptr;
  commpool_allocate_in_scope(0, 4096, nullptr, &pointer);
}

void Version() { commpool_version(); }

const void* AddressOf(commpool_status (*function)(int, uint64_t, CUstream_st*, void**)) {
  return reinterpret_cast<const void*>(function);
}

class Instructions : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own instructions would be counted";
#elif defined(__clang__)
    GTEST_SKIP() << "the bound is of GCC's code";
#endif
    // A function that returns a constant.
    const int smallest = InstructionsOf({reinterpret_cast<const void*>(&commpool_version), Version});
    if (smallest < 0) GTEST_SKIP() << "this system lets no process trace its child";
    ASSERT_GE(smallest, 2);
  }

  static constexpr int kMost = 5;  // a load, a test, a branch, a constant, a return
};

TEST_F(Instructions, OfAnAllocationWhereNoScopeIsOpenAreFive) {
  const int counted = InstructionsOf({AddressOf(commpool_allocate_in_scope), AllocateInScope});
  EXPECT_GE(counted, 2) << "it was not counted";
  EXPECT_LE(counted, kMost);
}

TEST_F(Instructions, OfAnAllocationInAScopeAreMore) {
  // Shows that the count works: with an open scope the call takes more.
  const OpenScope scope(DefaultPool());
  EXPECT_GT(InstructionsOf({AddressOf(commpool_allocate_in_scope), AllocateInScope}), 2 * kMost);
}

}  // namespace
}  // namespace commpool::internal::testing

#else

TEST(Instructions, AreCountedOnX86) { GTEST_SKIP() << "the counting knows the registers of x86-64 alone"; }

#endif
