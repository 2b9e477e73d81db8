// Allocation only where a scope catches: a framework's router asks this before it leaves a request to the framework.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/c_api/c_abi.h"

// For the adapters (src/library/c_api/open_scopes.h).
extern "C" const std::atomic<uint64_t>* const commpool_open_scopes;

namespace commpool::internal::testing {
namespace {

class CaughtAllocation : public ::testing::Test {
 protected:
  static commpool_pool_options Small() {
    auto options = Initialised(commpool_pool_options_init);
    options.limit_bytes = 4 << 20;
    return options;
  }
  static commpool_scope_options HandsOn() {
    auto options = Initialised(commpool_scope_options_init);
    options.exhaustion = COMMPOOL_EXHAUSTION_NEXT_SCOPE;
    return options;
  }
  // Stays untouched where no scope catches.
  static void ExpectNotCaught(int device = 0, uint64_t bytes = 4096) {
    int mark = 0;
    void* pointer = &mark;
    EXPECT_EQ(commpool_pool_close(987654), COMMPOOL_NOT_FOUND);
    const std::string sentence = commpool_last_error();
    EXPECT_EQ(commpool_allocate_in_scope(device, bytes, nullptr, &pointer), COMMPOOL_NOT_CAUGHT);
    EXPECT_EQ(pointer, &mark);
    EXPECT_EQ(commpool_last_error(), sentence) << "nothing failed";
  }
  void ExpectCaught() const {
    const uint64_t before = BlocksOf(pool_);
    void* pointer = nullptr;
    ExpectOk(commpool_allocate_in_scope(0, 4096, nullptr, &pointer));
    EXPECT_EQ(BlocksOf(pool_), before + 1);
    Free(pointer);
  }

  const OwnedPool pool_{Small()};
};

TEST_F(CaughtAllocation, LeavesTheRequestAloneOutsideEveryScope) {
  ExpectNotCaught();
  { const OpenScope scope(pool_); }
  ExpectNotCaught();
}

TEST_F(CaughtAllocation, MayBeServedWhereTheAdaptersFlagIsSet) {
  while (commpool_open_scopes->load() != 0) ExpectNotCaught();  // lets the flag of earlier scopes fall
  {
    const OpenScope scope(pool_);
    EXPECT_NE(commpool_open_scopes->load(), 0);
    ExpectCaught();
  }
  while (commpool_open_scopes->load() != 0) ExpectNotCaught();  // the flag falls after enough questions without a catch
  ExpectNotCaught();
}

TEST_F(CaughtAllocation, IsServedInsideAScopeAndAgainFromTheThreadsCache) {
  const OpenScope scope(pool_);
  ExpectCaught();
  ExpectCaught();
}

TEST_F(CaughtAllocation, LeavesRequestsAloneThatNoScopeCatches) {
  auto options = Initialised(commpool_scope_options_init);
  options.min_bytes = 8192;
  const OpenScope scope(pool_, &options);
  ExpectNotCaught();
  ExpectNotCaught(1, 8192);
  std::thread([] { ExpectNotCaught(0, 8192); }).join();
}

TEST_F(CaughtAllocation, IsServedByAScopeOfTheProcessOnAnyThread) {
  auto options = Initialised(commpool_scope_options_init);
  options.filter = COMMPOOL_FILTER_PROCESS;
  const OpenScope scope(pool_, &options);
  std::thread([&] { ExpectCaught(); }).join();
  ExpectNotCaught(1);
}

TEST_F(CaughtAllocation, FailsWhereTheScopesPoolDoes) {
  const OpenScope scope(pool_);
  void* pointer = nullptr;
  EXPECT_EQ(commpool_allocate_in_scope(0, 8 << 20, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY);
  EXPECT_EQ(commpool_allocate_in_scope(0, 4096, nullptr, nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_allocate_in_scope(COMMPOOL_CURRENT_DEVICE, 4096, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(CaughtAllocation, IsLeftAloneWhereTheFullScopesHandItOn) {
  const commpool_scope_options options = HandsOn();
  const OpenScope outer(pool_, &options);
  const OpenScope inner(pool_, &options);
  const commpool_pool fallback = DefaultPool();
  const uint64_t before = BlocksOf(fallback);
  ExpectNotCaught(0, 8 << 20);
  EXPECT_EQ(BlocksOf(fallback), before) << "that is where commpool_allocate would have gone";
  ExpectCaught();  // what fits
}

TEST_F(CaughtAllocation, IsServedByTheNextScopeOutWhereOneHandsItOn) {
  const OwnedPool roomy;
  const OpenScope outer(roomy);
  const commpool_scope_options options = HandsOn();
  const OpenScope inner(pool_, &options);
  void* pointer = nullptr;
  ExpectOk(commpool_allocate_in_scope(0, 8 << 20, nullptr, &pointer));
  EXPECT_EQ(BlocksOf(roomy), 1u);
  Free(pointer);
}

TEST_F(CaughtAllocation, CountsNoScopeThatDidNotBeginOrEndedTwice) {
  auto options = Initialised(commpool_scope_options_init);
  options.min_bytes = 2;
  options.max_bytes = 1;
  commpool_scope scope = 0;
  EXPECT_EQ(commpool_scope_begin(pool_, &options, &scope), COMMPOOL_INVALID_ARGUMENT);
  {
    const OpenScope outer(pool_);
    ExpectOk(commpool_scope_begin(pool_, nullptr, &scope));
    ExpectOk(commpool_scope_end(scope));
    EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_NOT_FOUND);
    ExpectCaught();  // the outer one is open
  }
  ExpectNotCaught();
}

}  // namespace
}  // namespace commpool::internal::testing
