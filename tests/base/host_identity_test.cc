#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/library/base/interface.h"

namespace commpool::internal {
namespace {

TEST(HostIdentity, IsTheSameInAnotherProcess) {
  const uint64_t here = HostIdentity();
  const pid_t child = fork();
  if (child == 0) _exit(HostIdentity() == here ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HostIdentity, IsAnotherInANetworkOfItsOwn) {
  constexpr int kMayNot = 2;
  const uint64_t here = HostIdentity();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0) _exit(kMayNot);
    _exit(HostIdentity() != here ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kMayNot) GTEST_SKIP() << "no network namespaces can be made here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace commpool::internal
