// CUDA does not survive fork(): a child gets an error, and makes no driver call.
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

class ForkedChild : public PoolTest {
 protected:
  // Runs `call` in a child; the parent's test fails where it is not refused.
  void ExpectRefused(const std::function<Status()>& call) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const uint64_t calls = CallCount("*");
      const Status status = call();
      const bool told = status.message().find("forked child") != std::string::npos;
      const bool asked_driver = CallCount("*") != calls;
      _exit(status.code() == StatusCode::kFailedPrecondition && told && !asked_driver ? 0 : 1);
    }
    int result = -1;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << "the child was not refused, or asked the driver";
  }
};

TEST_F(ForkedChild, IsRefusedByEveryCallOnBlocksAndPools) {
  const PoolHandle pool = Create(Configured("parent's"));
  const CUdeviceptr address = runtime().AllocateFrom(pool, kMiB, nullptr).value();
  ASSERT_TRUE(runtime().DefaultPool(0).ok()) << "there it is when the child asks";
  const TestStream stream;
  ExpectRefused([&] { return runtime().Allocate(0, 1, nullptr).status(); });
  ExpectRefused([&] { return runtime().Allocate(-1, 1, stream.get()).status(); });
  ExpectRefused([&] { return runtime().AllocateFrom(pool, 1, nullptr).status(); });
  ExpectRefused([&] { return runtime().CreatePool(Configured("child's")).status(); });
  ExpectRefused([&] { return runtime().DefaultPool(0).status(); });
  ExpectRefused([&] { return runtime().Free(address); });
  ExpectRefused([&] { return runtime().DestroyPool(pool); });
  ExpectRefused([&] { return runtime().RecordStream(address, nullptr); });
  ExpectRefused([&] { return runtime().ReleaseStream(stream.get()); });
  ExpectRefused([&] { return runtime().BeginCapture(pool, stream.get()).status(); });
  ExpectRefused([&] { return runtime().RefusePool(Configured("child's"), Status(StatusCode::kInternal, "why")); });
  EXPECT_TRUE(runtime().Free(address).ok()) << "the parent goes on";
}

TEST_F(ForkedChild, IsRefusedInAScopeToo) {
  const PoolHandle pool = Create(Configured("parent's"));
  const ScopeHandle scope = runtime().scopes().Begin({.pool = runtime().pools().Find(pool).value()}).value();
  ExpectRefused([&] { return runtime().Allocate(0, kMiB, nullptr).status(); });
  ExpectRefused([&] { return runtime().Allocate(Target::ScopesOf(0), kMiB, nullptr).status(); });
  EXPECT_TRUE(runtime().scopes().End(scope).ok());
}

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
  ExpectChildExits([&] { EXPECT_TRUE(runtime().Free(runtime().AllocateFrom(pool, 4096, nullptr).value()).ok()); },
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
