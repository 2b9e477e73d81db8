// Threads begin and end their own scopes without a lock while others look. Needs no driver, so that ThreadSanitizer can
// check it alone.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "src/library/pool/scopes/own_scopes.h"

namespace commpool::internal::testing {
namespace {

constexpr int kTimes = 20000;

TEST(ScopeThreads, OwnTheirStacksWhileOthersLook) {
  const auto board = std::make_shared<ScopeBoard>();
  std::atomic<int> running{2};
  std::atomic<ScopeHandle> last{0};
  const auto own = [&](PoolHandle pool) {
    OwnScopes* const scopes = OwnScopes::Join(board);
    ASSERT_NE(scopes, nullptr);
    for (int time = 0; time < kTimes; ++time) {
      const ScopePlan scope{pool, {1, 1}, 0, Exhaustion::kError};
      ScopeHandle handle = scopes->PushAtOnce(*board, scope);
      if (handle == 0) handle = scopes->PushSlowly(*board, scope);
      last.store(handle, std::memory_order_relaxed);
      ASSERT_NE(board->flag->load(), 0u) << "a scope is open";
      const std::optional<CaughtBy> caught = scopes->CatchingBefore(board.get(), {0, 0, 1}, kInnermost);
      ASSERT_TRUE(caught && caught->scope == handle && caught->pool == pool);
      if (scopes->PopAtOnce(board.get(), handle)) continue;
      MutexLock lock(board->mutex);
      scopes->Erase(board.get(), handle);
    }
    running.fetch_sub(1);
  };
  std::thread first(own, 1);
  std::thread second(own, 2);
  while (running.load() > 0) {
    MutexLock lock(board->mutex);
    std::vector<OwnScopes::Pause> pauses;
    bool open = false;
    for (OwnScopes* const scopes : board->stacks) pauses.emplace_back(*scopes);
    for (OwnScopes::Pause& pause : pauses) {
      open = open || !pause.empty();
      EXPECT_FALSE(pause.empty() && pause.MarkEnded(board.get(), last.load()));
    }
    if (!open) board->flag->store(0);
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace commpool::internal::testing
