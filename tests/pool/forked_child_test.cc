// A forked child ends well, whatever other threads held at the fork.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "src/library/pool/scopes/own_scopes.h"
#include "tests/pool/pool_fixture.h"

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer looks for leaks at each exit. A child has only one thread, so memory that the other threads' stacks
// point to would count as leaked.
static const pid_t kParent = getpid();
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return getpid() == kParent ? 0 : 1; }
#endif

namespace commpool::internal::testing {
namespace {

using ForkedChild = PoolTest;

// A thread of its own runs `hold`, and keeps what it holds while the given function runs.
class Held {
 public:
  explicit Held(std::function<void(const std::function<void()>& meanwhile)> hold)
      : thread_([this, hold = std::move(hold)] {
          hold([this] {
            holds_.set_value();
            over_.get_future().wait();
          });
        }) {
    holds_.get_future().wait();
  }
  ~Held() {
    over_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> holds_;
  std::promise<void> over_;
  std::thread thread_;
};

// Forks on a thread that has run `use`, so that the child ends only that thread's objects.
void ExpectChildExits(const std::function<void()>& use,
                      std::function<void(const std::function<void()>& meanwhile)> hold) {
  std::thread([&] {
    use();
    const Held held(std::move(hold));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // else the test would wait for a hanging child
      exit(0);
    }
    int result = -1;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << "the child hangs: " << result;
  }).join();
}

TEST_F(ForkedChild, ExitsThoughAnotherThreadHeldTheCachesAtTheFork) {
  const PoolHandle pool = Create(Configured("parent's"));
  ExpectChildExits([&] { Free(Allocate(pool, 4096)); },
                   [&](const std::function<void()>& meanwhile) {
                     runtime().caches().Statistics(pool, [&](const engine::CacheStatistics&) { meanwhile(); });
                   });
}

TEST(ForkedChildsScopes, LetItExitThoughAnotherThreadHeldTheirBoardAtTheFork) {
  const auto board = std::make_shared<ScopeBoard>();
  ExpectChildExits([&] { ASSERT_NE(OwnScopes::Join(board), nullptr); },
                   [&](const std::function<void()>& meanwhile) {
                     MutexLock lock(board->mutex);
                     meanwhile();
                   });
}

}  // namespace
}  // namespace commpool::internal::testing
