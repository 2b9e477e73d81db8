// commpool holds locks while it runs a user backing's functions, so these must not call commpool: such calls are
// refused with a message, and the call that runs the functions ends.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "commpool/pool.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool {
namespace {

using internal::testing::SharedDriver;

// Makes a call inside a function of the pool under test, and keeps the result.
struct Calls {
  std::function<commpool_status()> in_allocate;
  std::function<commpool_status()> in_free;
  commpool_status answer = COMMPOOL_OK;
  std::string sentence;

  void Make(const std::function<commpool_status()>& call) {
    if (!call) return;
    answer = call();
    sentence = commpool_last_error();
  }

  static void* Allocate(ptrdiff_t bytes, int, CUstream_st*, void* context) {
    auto& calls = *static_cast<Calls*>(context);
    calls.Make(calls.in_allocate);
    CUdeviceptr address = 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
    return reinterpret_cast<void*>(address);
  }
  static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void* context) {
    auto& calls = *static_cast<Calls*>(context);
    calls.Make(calls.in_free);
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
  }
};

class UserFunctions : public internal::testing::DriverTest {
 protected:
  UserFunctions() {
    AllowLeak("");  // the default pool's, which lives as long as the process
    PoolOptions options;
    options.backing = Backing::kUser;
    options.user = {Calls::Allocate, Calls::Free, &calls_};
    user_ = Pool::create(options).value();
    cached_ = other_.allocate(4096, nullptr).value().release();
    EXPECT_EQ(commpool_free(cached_), COMMPOOL_OK);
  }

  // Every kind of call: on the pool itself, on other pools, one that the thread's cache could serve, and one on no
  // pool.
  std::vector<std::pair<const char*, std::function<commpool_status()>>> AllCalls() {
    return {
        {"allocate from the pool itself", [&] { return Allocate(user_.handle()); }},
        {"allocate from another pool's cache", [&] { return Allocate(other_.handle()); }},
        {"allocate outside of scopes", [&] { return commpool_allocate(0, 4096, nullptr, &block_); }},
        {"trim", [&] { return commpool_pool_trim(other_.handle(), 0, nullptr); }},
        {"close", [&] { return commpool_pool_close(user_.handle()); }},
        {"destroy", [&] { return commpool_pool_destroy(other_.handle()); }},
        {"initialize", [&] { return commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING); }},
        {"statistics", [&] { return StatisticsOf(user_.handle()); }},
    };
  }
  commpool_status Allocate(commpool_pool pool) { return commpool_pool_allocate(pool, 4096, nullptr, &block_); }
  static commpool_status StatisticsOf(commpool_pool pool) {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    return commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics);
  }
  void ExpectRefused(const char* call, const char* function) {
    EXPECT_EQ(calls_.answer, COMMPOOL_FAILED_PRECONDITION) << call;
    EXPECT_NE(calls_.sentence.find(function), std::string::npos) << call << ": " << calls_.sentence;
    calls_.answer = COMMPOOL_OK;
    calls_.sentence.clear();
  }

  Calls calls_;
  Pool user_ = Pool::create({}).value();
  Pool other_ = Pool::create({}).value();
  void* cached_ = nullptr;
  void* block_ = nullptr;
};

TEST_F(UserFunctions, ThatMakeMemoryAreRefusedEveryCall) {
  for (const auto& [name, call] : AllCalls()) {
    calls_.in_allocate = call;
    ASSERT_TRUE(user_.reserve(MiB(64) + user_.stats()->reserved_bytes.current).ok()) << commpool_last_error();
    ExpectRefused(name, "a user backing's allocate function");
  }
}

TEST_F(UserFunctions, ThatFreeMemoryAreRefusedEveryCall) {
  for (const auto& [name, call] : AllCalls()) {
    ASSERT_TRUE(user_.reserve(MiB(2)).ok()) << commpool_last_error();
    calls_.in_free = call;
    ASSERT_TRUE(user_.trim(0).ok()) << commpool_last_error();
    calls_.in_free = nullptr;
    ExpectRefused(name, "a user backing's free function");
  }
}

// As a garbage collector does that runs there.
TEST_F(UserFunctions, FreeOnceTheCallThatRanThemEnds) {
  void* small = other_.allocate(4096, nullptr).value().release();
  void* large = other_.allocate(MiB(3), nullptr).value().release();
  calls_.in_allocate = [&] {
    const commpool_status freed = commpool_free(small);
    return freed == COMMPOOL_OK ? commpool_free(large) : freed;
  };
  ASSERT_TRUE(user_.reserve(MiB(2)).ok()) << commpool_last_error();
  EXPECT_EQ(calls_.answer, COMMPOOL_OK) << calls_.sentence;
  EXPECT_EQ(other_.stats()->allocated_bytes.current, 0u);
  EXPECT_EQ(commpool_free(large), COMMPOOL_NOT_FOUND);
}

// Another thread may hold what the function waits for, as Python's lock: it must not free what the function freed, for
// that needs a lock of the function's pool.
TEST_F(UserFunctions, LeaveTheirFreesToTheirOwnThread) {
  PoolOptions options;
  options.backing = Backing::kUser;
  options.user = {Calls::Allocate, Calls::Free, &calls_};
  options.release_threshold_bytes = 0;
  Pool releasing = Pool::create(options).value();
  void* garbage = releasing.allocate(MiB(4), nullptr).value().release();
  void* block = other_.allocate(MiB(4), nullptr).value().release();
  std::future<commpool_status> recorded;
  calls_.in_allocate = [&] {
    const commpool_status freed = commpool_free(garbage);
    recorded = std::async(std::launch::async, [&] { return commpool_record_stream(block, nullptr); });
    EXPECT_EQ(recorded.wait_for(std::chrono::seconds(10)), std::future_status::ready) << "it waits for the function";
    return freed;
  };
  ASSERT_TRUE(releasing.reserve(MiB(64)).ok()) << commpool_last_error();
  calls_.in_allocate = nullptr;
  EXPECT_EQ(recorded.get(), COMMPOOL_OK);
  EXPECT_EQ(releasing.stats()->allocated_bytes.current, 0u);
  EXPECT_EQ(commpool_free(block), COMMPOOL_OK);
}

// Each rank's part of the call has a thread of its own.
TEST_F(UserFunctions, FreeInACallForSeveralPools) {
  void* block = other_.allocate(MiB(3), nullptr).value().release();
  calls_.in_allocate = [&] { return commpool_free(block); };
  const commpool_pool pools[] = {user_.handle(), other_.handle()};
  ASSERT_EQ(commpool_pools_reserve(pools, 2, MiB(64)), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_free(block), COMMPOOL_NOT_FOUND);
}

TEST_F(UserFunctions, LeaveTheLibraryAsItWas) {
  calls_.in_allocate = [&] { return Allocate(other_.handle()); };
  ASSERT_TRUE(user_.reserve(MiB(2)).ok()) << commpool_last_error();
  EXPECT_EQ(Allocate(other_.handle()), COMMPOOL_OK) << "outside of the function the thread may call again";
  EXPECT_EQ(block_, cached_) << "and has its cache again";
  EXPECT_EQ(commpool_free(block_), COMMPOOL_OK);
}

}  // namespace
}  // namespace commpool
