// A process that made a fork guard is no child of it; its forked children are.
#include "src/library/base/fork_guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace commpool::internal {
namespace {

// The exit code of a forked child. A child must not return into the test.
bool InChild(const std::function<bool()>& finds) {
  const pid_t child = fork();
  if (child == 0) _exit(finds() ? 1 : 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(ForkGuard, SaysNoInTheProcessThatMadeIt) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.InChild());
}

TEST(ForkGuard, SaysYesInAChild) {
  const ForkGuard guard;
  EXPECT_TRUE(InChild([&] { return guard.InChild(); }));
}

TEST(ForkGuard, SaysNoInTheParentOfAChild) {
  const ForkGuard guard;
  InChild([&] { return guard.InChild(); });
  EXPECT_FALSE(guard.InChild());
}

TEST(ForkGuard, SaysYesInAChildsChild) {
  const ForkGuard guard;
  EXPECT_TRUE(InChild([&] { return InChild([&] { return guard.InChild(); }); }));
}

TEST(ForkGuard, SaysNoInAChildThatMadeItsOwn) {
  EXPECT_FALSE(InChild([] { return ForkGuard().InChild(); }));
}

}  // namespace
}  // namespace commpool::internal
