// Allocation only where a scope catches: a framework's router asks this before it leaves a request to the framework.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "commpool/commpool.h"

// For the adapters (src/library/c_api/open_scopes.h).
extern "C" const std::atomic<uint64_t>* const commpool_open_scopes;

namespace {

class CaughtAllocation : public ::testing::Test {
 protected:
  CaughtAllocation() {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.limit_bytes = 4 << 20;
    EXPECT_EQ(commpool_pool_create(&options, &pool_), COMMPOOL_OK) << commpool_last_error();
  }
  ~CaughtAllocation() override { EXPECT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK) << commpool_last_error(); }

  commpool_scope Begin(const commpool_scope_options* options = nullptr) {
    commpool_scope scope = 0;
    EXPECT_EQ(commpool_scope_begin(pool_, options, &scope), COMMPOOL_OK) << commpool_last_error();
    return scope;
  }
  static void End(commpool_scope scope) { EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK) << commpool_last_error(); }
  static uint64_t BlocksOf(commpool_pool pool) {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    EXPECT_EQ(commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics), COMMPOOL_OK) << commpool_last_error();
    return statistics.allocated_blocks.current;
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
    ASSERT_EQ(commpool_allocate_in_scope(0, 4096, nullptr, &pointer), COMMPOOL_OK) << commpool_last_error();
    EXPECT_EQ(BlocksOf(pool_), before + 1);
    EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
  }

  commpool_pool pool_ = 0;
};

TEST_F(CaughtAllocation, LeavesTheRequestAloneOutsideEveryScope) {
  ExpectNotCaught();
  End(Begin());
  ExpectNotCaught();
}

TEST_F(CaughtAllocation, MayBeServedWhereTheAdaptersFlagIsSet) {
  void* pointer = nullptr;
  while (commpool_open_scopes->load() != 0) ExpectNotCaught();  // lets the flag of earlier scopes fall
  const commpool_scope scope = Begin();
  EXPECT_NE(commpool_open_scopes->load(), 0);
  EXPECT_EQ(commpool_allocate_in_scope(0, 4096, nullptr, &pointer), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
  End(scope);
  while (commpool_open_scopes->load() != 0) ExpectNotCaught();  // the flag falls after enough questions without a catch
  ExpectNotCaught();
}

TEST_F(CaughtAllocation, IsServedInsideAScopeAndAgainFromTheThreadsCache) {
  const commpool_scope scope = Begin();
  ExpectCaught();
  ExpectCaught();
  End(scope);
}

TEST_F(CaughtAllocation, LeavesRequestsAloneThatNoScopeCatches) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.min_bytes = 8192;
  const commpool_scope scope = Begin(&options);
  ExpectNotCaught();
  ExpectNotCaught(1, 8192);
  std::thread([] { ExpectNotCaught(0, 8192); }).join();
  End(scope);
}

TEST_F(CaughtAllocation, IsServedByAScopeOfTheProcessOnAnyThread) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.filter = COMMPOOL_FILTER_PROCESS;
  const commpool_scope scope = Begin(&options);
  std::thread([&] { ExpectCaught(); }).join();
  ExpectNotCaught(1);
  End(scope);
}

TEST_F(CaughtAllocation, FailsWhereTheScopesPoolDoes) {
  const commpool_scope scope = Begin();
  void* pointer = nullptr;
  EXPECT_EQ(commpool_allocate_in_scope(0, 8 << 20, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY);
  EXPECT_EQ(commpool_allocate_in_scope(0, 4096, nullptr, nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_allocate_in_scope(COMMPOOL_CURRENT_DEVICE, 4096, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(pointer, nullptr);
  End(scope);
}

TEST_F(CaughtAllocation, IsLeftAloneWhereTheFullScopesHandItOn) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.exhaustion = COMMPOOL_EXHAUSTION_NEXT_SCOPE;
  const commpool_scope outer = Begin(&options);
  const commpool_scope inner = Begin(&options);
  commpool_pool fallback = 0;
  ASSERT_EQ(commpool_default_pool(0, &fallback), COMMPOOL_OK) << commpool_last_error();
  const uint64_t before = BlocksOf(fallback);
  ExpectNotCaught(0, 8 << 20);
  EXPECT_EQ(BlocksOf(fallback), before) << "that is where commpool_allocate would have gone";
  ExpectCaught();  // what fits
  End(inner);
  End(outer);
}

TEST_F(CaughtAllocation, IsServedByTheNextScopeOutWhereOneHandsItOn) {
  commpool_pool_options roomy;
  commpool_pool_options_init(&roomy);
  commpool_pool outer_pool = 0;
  ASSERT_EQ(commpool_pool_create(&roomy, &outer_pool), COMMPOOL_OK) << commpool_last_error();
  commpool_scope outer = 0;
  ASSERT_EQ(commpool_scope_begin(outer_pool, nullptr, &outer), COMMPOOL_OK) << commpool_last_error();
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.exhaustion = COMMPOOL_EXHAUSTION_NEXT_SCOPE;
  const commpool_scope inner = Begin(&options);
  void* pointer = nullptr;
  ASSERT_EQ(commpool_allocate_in_scope(0, 8 << 20, nullptr, &pointer), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(BlocksOf(outer_pool), 1u);
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
  End(inner);
  End(outer);
  EXPECT_EQ(commpool_pool_destroy(outer_pool), COMMPOOL_OK);
}

TEST_F(CaughtAllocation, CountsNoScopeThatDidNotBeginOrEndedTwice) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.min_bytes = 2;
  options.max_bytes = 1;
  commpool_scope scope = 0;
  EXPECT_EQ(commpool_scope_begin(pool_, &options, &scope), COMMPOOL_INVALID_ARGUMENT);
  const commpool_scope outer = Begin();
  const commpool_scope inner = Begin();
  End(inner);
  EXPECT_EQ(commpool_scope_end(inner), COMMPOOL_NOT_FOUND);
  ExpectCaught();  // the outer one is open
  End(outer);
  ExpectNotCaught();
}

}  // namespace
