// Calls from the last destructors of a thread or a process, after much of the library's own state is gone. Each call
// works, or is an error with a message.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "commpool/pool.h"
#include "commpool/scope.h"

namespace commpool {
namespace {

constexpr int kExpected = 7;
constexpr uint64_t kBytes = 4096;  // of a size that threads' caches keep

// Ends the process at once where a last call did something wrong.
void Expect(bool holds, int otherwise) {
  if (!holds) _exit(otherwise);
}

void ExpectFailureWithSentence() {
  int foreign = 0;
  Expect(commpool_free(&foreign) == COMMPOOL_NOT_FOUND, 20);
  Expect(std::string(commpool_last_error()).find("lies in no pool") != std::string::npos, 21);
}

void ExpectPair() {
  void* block = nullptr;
  Expect(commpool_allocate(0, kBytes, nullptr, &block) == COMMPOOL_OK, 30);
  Expect(commpool_free(block) == COMMPOOL_OK, 31);
}

// Static or thread-local objects of a program. They are made before the library's own, so they are destroyed later.
struct Kept {
  std::optional<Pool> pool;
  std::optional<PoolScope> scope;
  std::optional<Buffer> buffer;  // ends first
  std::optional<Buffer> second_buffer;
  std::function<void()> last_call;

  ~Kept() {
    if (last_call) last_call();
  }
};

Kept kept;
std::optional<Pool> pool_that_ends_first;  // destroyed before `kept`
thread_local Kept kept_by_thread;

uint64_t LiveBlocks(const Pool& pool) { return pool.stats().value().allocated_blocks.current; }

// Runs `program` in a new process without a driver yet, and lets it exit.
void ExpectQuietEnd(const std::function<void()>& program) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    program();
    std::exit(kExpected);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state)) << "signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), kExpected);
}

// The thread's own destructors run before the join.
void RunThread(const std::function<void()>& work) {
  std::thread([&] {
    kept_by_thread.buffer.reset();  // made before anything of the library
    work();
  }).join();
}

TEST(LastCalls, OfAProcessFreeAStaticBuffer) {
  ExpectQuietEnd([] { kept.buffer = allocate(kBytes, nullptr, 0).value(); });
}

TEST(LastCalls, OfAProcessFreeABufferBeforeAndAfterItsPool) {
  ExpectQuietEnd([] {
    kept.pool = Pool::create({}).value();
    kept.buffer = kept.pool->allocate(kBytes, nullptr).value();
    pool_that_ends_first = Pool::create({}).value();
    kept.second_buffer = pool_that_ends_first->allocate(kBytes, nullptr).value();
  });
}

TEST(LastCalls, OfAProcessFailWithASentence) {
  ExpectQuietEnd([] {
    ExpectFailureWithSentence();
    kept.last_call = ExpectFailureWithSentence;
  });
}

TEST(LastCalls, OfAProcessMayBeItsFirst) {
  ExpectQuietEnd([] { kept.last_call = ExpectPair; });
}

TEST(LastCalls, OfAProcessEndAScopeAndAllocate) {
  ExpectQuietEnd([] {
    kept.pool = Pool::create({}).value();
    kept.scope.emplace(*kept.pool);
    ExpectPair();
    kept.last_call = ExpectPair;
  });
}

TEST(LastCalls, OfAThreadFreeItsBuffers) {
  ExpectQuietEnd([] {
    Pool pool = Pool::create({}).value();
    RunThread([&] {
      kept_by_thread.buffer = pool.allocate(kBytes, nullptr).value();
      kept_by_thread.second_buffer = pool.allocate(kBytes, nullptr).value();
      kept_by_thread.second_buffer.reset();  // into the thread's cache
    });
    Expect(LiveBlocks(pool) == 0, 40);
    ExpectPair();
  });
}

TEST(LastCalls, OfAThreadAllocateAndFail) {
  ExpectQuietEnd([] {
    RunThread([] {
      kept_by_thread.last_call = [] {
        ExpectFailureWithSentence();
        ExpectPair();
      };
      ExpectFailureWithSentence();
      ExpectPair();
    });
  });
}

TEST(LastCalls, OfAThreadEndItsScopeAndBeginNone) {
  ExpectQuietEnd([] {
    Pool pool = Pool::create({}).value();
    RunThread([&] {
      kept_by_thread.last_call = [&] {
        kept_by_thread.scope.reset();
        ExpectPair();
        Expect(PoolScope::begin(pool).status().code() == StatusCode::kFailedPrecondition, 50);
      };
      kept_by_thread.scope.emplace(pool);
      ExpectPair();
    });
    ExpectPair();
  });
}

}  // namespace
}  // namespace commpool
