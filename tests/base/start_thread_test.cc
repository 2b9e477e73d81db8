// Threads of ours: one that the host refuses is a Status, and one without memory ends the process in a sentence.
#include "src/library/base/start_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <new>

namespace commpool::internal {
namespace {

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
  const Status refused = StartThread("a thread of a test", [] { FAIL() << "it runs"; }).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.message().find("the host refused commpool a thread, a thread of a test"), std::string::npos)
      << refused.message();
}

TEST(StartThreadDeathTest, WithoutHostMemoryItEndsTheProcessAndNamesTheThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(StartThread("a thread of a test", [] { throw std::bad_alloc(); }).value().join(),
               "^commpool: a thread of a test: the host has no memory\n");
}

}  // namespace
}  // namespace commpool::internal
