// Forked children, threads of ours, and the host and its interfaces. A thread that the host refuses is a Status, and
// one without memory ends the process in a sentence.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <new>

#include "src/library/base/fork_guard.h"
#include "src/library/base/interface.h"
#include "src/library/base/start_thread.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

// The exit code of a forked child. A child must not return into the test.
int ExitCodeOfChild(const std::function<int()>& run) {
  const pid_t child = fork();
  if (child == 0) _exit(run());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// What a forked child finds.
bool InChild(const std::function<bool()>& finds) {
  return ExitCodeOfChild([&] { return finds() ? 1 : 0; }) == 1;
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

TEST(HostIdentity, IsTheSameInAnotherProcess) {
  const uint64_t here = HostIdentity();
  EXPECT_TRUE(InChild([&] { return HostIdentity() == here; }));
}

TEST(HostIdentity, IsAnotherInANetworkOfItsOwn) {
  constexpr int kMayNot = 2;
  const uint64_t here = HostIdentity();
  const int code = ExitCodeOfChild([&] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0) return kMayNot;
    return HostIdentity() != here ? 0 : 1;
  });
  if (code == kMayNot) GTEST_SKIP() << "no network namespaces can be made here";
  EXPECT_EQ(code, 0);
}

// Larger than a process's addresses, so the host refuses every thread.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, size_t{1} << 50);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(StartThread, RunsTheBodyWithoutSignals) {
  sigset_t blocked;
  sigemptyset(&blocked);
  StartThread("a thread of a test", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }).value().join();
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGTERM), 0);
}

TEST(StartThread, ThatTheHostRefusesIsAStatus) {
  const NoThreads none;
  ExpectFailure(StartThread("a thread of a test", [] { FAIL() << "it runs"; }).status(), StatusCode::kOutOfMemory,
                "the host refused commpool a thread, a thread of a test");
}

TEST(StartThreadDeathTest, WithoutHostMemoryItEndsTheProcessAndNamesTheThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(StartThread("a thread of a test", [] { throw std::bad_alloc(); }).value().join(),
               "^commpool: a thread of a test: the host has no memory\n");
}

TEST(InterfaceMatches, ComparesPrefixesOfAList) {
  EXPECT_TRUE(InterfaceMatches("eth0", "eth"));
  EXPECT_TRUE(InterfaceMatches("ib0", "eth,ib"));
  EXPECT_FALSE(InterfaceMatches("wlan0", "eth,ib"));
}

TEST(InterfaceMatches, ExcludesAfterACaret) {
  EXPECT_FALSE(InterfaceMatches("docker0", "^docker,lo"));
  EXPECT_FALSE(InterfaceMatches("lo", "^docker,lo"));
  EXPECT_TRUE(InterfaceMatches("eth0", "^docker,lo"));
}

TEST(InterfaceMatches, ComparesWholeNamesAfterAnEqualSign) {
  EXPECT_TRUE(InterfaceMatches("eth1", "=eth1,eth2"));
  EXPECT_FALSE(InterfaceMatches("eth10", "=eth1,eth2"));
  EXPECT_FALSE(InterfaceMatches("eth1", "^=eth1"));
}

TEST(InterfaceMatches, NamesNothingWithAnEmptyPattern) {
  EXPECT_FALSE(InterfaceMatches("eth0", ""));
  EXPECT_FALSE(InterfaceMatches("eth0", ",,"));
}

TEST(FindHostAddress, IsTheAddressThatWasAskedFor) {
  EXPECT_EQ(FindHostAddress("10.77.0.1").text, "10.77.0.1");
  EXPECT_EQ(FindHostAddress("10.77.0.1").why_local, "");
}

TEST(FindHostAddress, SaysThatOnlyThisHostReachesLoopback) {
  EXPECT_EQ(FindHostAddress("=lo").text, "127.0.0.1");
  EXPECT_EQ(FindHostAddress("=lo").why_local, "\"=lo\" leads to the interface lo");
  EXPECT_EQ(FindHostAddress("127.0.0.2").why_local, "it was asked for by its address");
}

TEST(FindHostAddress, FallsBackToLoopbackAndSaysWhy) {
  const HostAddress found = FindHostAddress("=no-such-interface");
  EXPECT_EQ(found.text, "127.0.0.1");
  EXPECT_EQ(found.why_local, "no interface that is up has an IPv4 address and fits \"=no-such-interface\"");
}

TEST(InterfaceCheck, AcceptsAnEmptyTextAndAnAddress) {
  EXPECT_TRUE(CheckInterface("").ok());
  EXPECT_TRUE(CheckInterface("10.77.0.1").ok());
}

TEST(InterfaceCheck, RefusesAMissingInterfaceAndListsTheOthers) {
  const Status status = CheckInterface("=nowhere0");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string opening =
      "COMMPOOL_INTERFACE is \"=nowhere0\": it may be an address or name an interface of this host: ";
  ASSERT_EQ(status.message().substr(0, opening.size()), opening);
  const std::string known = status.message().substr(opening.size());
  if (known == "none is up") GTEST_SKIP() << "no interface of this machine is up";
  EXPECT_TRUE(CheckInterface("=" + known.substr(0, known.find(','))).ok()) << known;
}

}  // namespace
}  // namespace commpool::internal
