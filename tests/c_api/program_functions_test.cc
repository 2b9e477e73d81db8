// Functions of the program's own inside a call of commpool. An all_gather's exception becomes a failure of the call, in
// any round. commpool holds locks while it runs an all_gather, or a user backing's functions: their calls of commpool
// are refused with a message, except frees, and the call that runs them ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "commpool/pool.h"
#include "commpool/pool_group.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

// Calls that such a function may not make: on its own pool, on another, whose blocks the thread's cache may have, and
// on none.
std::vector<std::pair<const char*, std::function<commpool_status()>>> RefusedCalls(const Pool& of_function,
                                                                                   const Pool& another, void** block) {
  const commpool_pool own = of_function.handle();
  const commpool_pool other = another.handle();
  return {
      {"verify", [=] { return commpool_pool_verify(own); }},
      {"allocate from the pool itself", [=] { return commpool_pool_allocate(own, 4096, nullptr, block); }},
      {"allocate from another pool's cache", [=] { return commpool_pool_allocate(other, 4096, nullptr, block); }},
      {"allocate outside of scopes", [=] { return commpool_allocate(0, 4096, nullptr, block); }},
      {"reserve another pool", [=] { return commpool_pool_reserve(other, MiB(2)); }},
      {"trim", [=] { return commpool_pool_trim(other, 0, nullptr); }},
      {"close", [=] { return commpool_pool_close(own); }},
      {"destroy", [=] { return commpool_pool_destroy(own); }},
      {"destroy another pool", [=] { return commpool_pool_destroy(other); }},
      {"initialize", [] { return commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING); }},
      {"statistics",
       [=] {
         auto statistics = Initialised(commpool_statistics_init);
         return commpool_pool_statistics(own, COMMPOOL_PEAKS_STAY, &statistics);
       }},
  };
}

// A call inside of such a function, and what it answered.
struct Inside {
  commpool_status answer = COMMPOOL_OK;
  std::string sentence;

  void Make(const std::function<commpool_status()>& call) {
    answer = call();
    sentence = commpool_last_error();
  }
  void ExpectRefused(const char* call, const char* function) const {
    EXPECT_EQ(answer, COMMPOOL_FAILED_PRECONDITION) << call;
    EXPECT_NE(sentence.find(function), std::string::npos) << call << ": " << sentence;
  }
};

// The all-gather of a home of one rank. It does something special in the call of a given number.
struct Gathering {
  int calls = 0;
  int at = 0;  // 0: in no call
  std::function<void()> act;
  int silent_from = 0;  // from this call on it says OK and gathers nothing; 0: never

  void ActIn(int call, std::function<void()> what) {
    calls = 0;
    at = call;
    act = std::move(what);
  }
  static int Gather(const void* sent, void* received, size_t bytes, void* context) {
    auto& mine = *static_cast<Gathering*>(context);
    ++mine.calls;
    if (mine.silent_from != 0 && mine.calls >= mine.silent_from) return 0;
    std::memcpy(received, sent, bytes);
    if (mine.calls == mine.at) mine.act();
    return 0;
  }
};

class AllGather : public DriverTest {
 protected:
  // A round takes two calls: one for lengths, one for contents. A reserve that grows has three rounds.
  static constexpr int kCallsOfAGrowth = 6;

  AllGather() {
    AllowLeak("");  // the runtime's, which lives as long as the process
    const int device = 0;
    EXPECT_EQ(SharedDriver()->nccl.ncclCommInitAll(&home_, 1, &device), ncclSuccess);
    pool_.emplace(Pool::create(OptionsOver(gathering_)).value());
    other_.emplace(Pool::create({}).value());
  }
  ~AllGather() override {
    End(*pool_);
    EXPECT_EQ(SharedDriver()->nccl.ncclCommDestroy(home_), ncclSuccess);
  }

  PoolOptions OptionsOver(Gathering& gathering) const {
    return {.symmetric_across = home_, .agreement = {Gathering::Gather, &gathering}};
  }
  // Even for a pool with broken rounds.
  void End(Pool& pool) {
    gathering_.ActIn(0, {});
    ExpectOk(commpool_pool_abandon(pool.handle(), home_, COMMPOOL_LIFE_ALIVE));
    ExpectOk(commpool_pool_close(pool.handle()));
  }
  static size_t MemoryOfTheDriver() {
    const std::vector<std::string> live = EmulatorLeaks();
    return static_cast<size_t>(std::count_if(live.begin(), live.end(), [](const std::string& line) {
      return line.find("physical memory") != std::string::npos;
    }));
  }

  ncclComm_t home_ = nullptr;
  Gathering gathering_;
  std::optional<Pool> pool_;
  std::optional<Pool> other_;
  void* block_ = nullptr;
};

TEST_F(AllGather, ThatThrowsFailsTheCallInAnyRound) {
  for (int call = 1; call <= kCallsOfAGrowth; ++call) {
    Gathering gathering;
    Pool pool = Pool::create(OptionsOver(gathering)).value();
    gathering.ActIn(call, [] { throw std::runtime_error("no luck"); });
    ExpectFailure(commpool_pool_reserve(pool.handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "no luck");
    gathering.ActIn(0, {});
    ExpectFailure(commpool_pool_reserve(pool.handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "an earlier call failed");
    EXPECT_EQ(gathering.calls, 0);
    End(pool);
  }
}

TEST_F(AllGather, ThatThrowsAfterRegistrationLeavesMappedWhatNcclHolds) {
  gathering_.ActIn(kCallsOfAGrowth, [] { throw std::runtime_error("no luck"); });
  ExpectFailure(commpool_pool_reserve(pool_->handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "no luck");
  EXPECT_EQ(gathering_.calls, kCallsOfAGrowth) << "nothing more is asked of it";
}

// The ranks stay in step: a collective close works, and releases what the reserve could not.
TEST_F(AllGather, ThatAnswersNothingForAWhileLeavesNoMemory) {
  for (int call = 1; call <= kCallsOfAGrowth; ++call) {
    Gathering gathering;
    Pool pool = Pool::create(OptionsOver(gathering)).value();
    const auto before = MemoryOfTheDriver();
    gathering.calls = 0;
    gathering.silent_from = call;
    ExpectFailure(commpool_pool_reserve(pool.handle(), MiB(4)), COMMPOOL_DISAGREEMENT, "unreadable");
    gathering.silent_from = 0;
    ExpectOk(commpool_pool_close(pool.handle()));
    EXPECT_EQ(MemoryOfTheDriver(), before) << "silent from call " << call;
  }
}

TEST_F(AllGather, MayThrowWhatIsNoException) {
  gathering_.ActIn(1, [] { throw 42; });
  ExpectFailure(commpool_pool_verify(pool_->handle()), COMMPOOL_REMOTE_FAILURE, "threw something");
}

TEST_F(AllGather, MayThrowOnAThreadOfTheLibrarys) {
  Gathering gathering;
  PoolGroup pools = PoolGroup::create({OptionsOver(gathering_), OptionsOver(gathering)}).value();
  for (Gathering* one : {&gathering_, &gathering}) one->ActIn(1, [] { throw 42; });
  ExpectFailure(pools.trim().status(), StatusCode::kRemoteFailure, "threw something");
}

TEST_F(AllGather, IsRefusedEveryCallButAFree) {
  for (const auto& [name, call] : RefusedCalls(*pool_, *other_, &block_)) {
    Inside inside;
    gathering_.ActIn(1, [&, &made = call] { inside.Make(made); });
    EXPECT_EQ(commpool_pool_verify(pool_->handle()), COMMPOOL_OK) << name << ": " << commpool_last_error();
    inside.ExpectRefused(name, "commpool was called by a pool's all_gather");
  }
}

// A garbage collector that runs inside a Python function may free anything.
TEST_F(AllGather, MayFreeAlsoTheLastBlockOfADestroyedPool) {
  ASSERT_TRUE(pool_->reserve(MiB(2)).ok()) << commpool_last_error();
  ExpectOk(commpool_pool_allocate(pool_->handle(), 4096, nullptr, &block_));
  void* const last = Allocate(other_->handle(), MiB(4));
  other_.reset();
  std::vector<commpool_status> answers;
  gathering_.ActIn(1, [&] { answers = {commpool_free(block_), commpool_free(last)}; });
  ExpectOk(commpool_pool_reclaim(pool_->handle(), nullptr));
  EXPECT_EQ(answers, (std::vector<commpool_status>{COMMPOOL_OK, COMMPOOL_OK})) << commpool_last_error();
}

// Makes a call inside a function of the pool under test, and keeps the result.
struct Calls : Inside {
  std::function<commpool_status()> in_allocate;
  std::function<commpool_status()> in_free;

  static void* Allocate(ptrdiff_t bytes, int, CUstream_st*, void* context) {
    auto& calls = *static_cast<Calls*>(context);
    if (calls.in_allocate) calls.Make(calls.in_allocate);
    CUdeviceptr address = 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
    return reinterpret_cast<void*>(address);
  }
  static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void* context) {
    auto& calls = *static_cast<Calls*>(context);
    if (calls.in_free) calls.Make(calls.in_free);
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
  }
};

class UserFunctions : public DriverTest {
 protected:
  UserFunctions() {
    AllowLeak("");  // the default pool's, which lives as long as the process
    cached_ = other_.allocate(4096, nullptr).value().release();
    Free(cached_);
  }

  PoolOptions OfUser() { return {.backing = Backing::kUser, .user = {Calls::Allocate, Calls::Free, &calls_}}; }
  commpool_status Allocate(commpool_pool pool) { return commpool_pool_allocate(pool, 4096, nullptr, &block_); }
  void ExpectRefused(const char* call, const char* function) {
    calls_.ExpectRefused(call, function);
    calls_.answer = COMMPOOL_OK;
    calls_.sentence.clear();
  }

  Calls calls_;
  Pool user_ = Pool::create(OfUser()).value();
  Pool other_ = Pool::create({}).value();
  void* cached_ = nullptr;
  void* block_ = nullptr;
};

TEST_F(UserFunctions, ThatMakeMemoryAreRefusedEveryCall) {
  for (const auto& [name, call] : RefusedCalls(user_, other_, &block_)) {
    calls_.in_allocate = call;
    ASSERT_TRUE(user_.reserve(MiB(64) + user_.stats()->reserved_bytes.current).ok()) << commpool_last_error();
    ExpectRefused(name, "a user backing's allocate function");
  }
}

TEST_F(UserFunctions, ThatFreeMemoryAreRefusedEveryCall) {
  for (const auto& [name, call] : RefusedCalls(user_, other_, &block_)) {
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
  PoolOptions options = OfUser();
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
  ExpectOk(recorded.get());
  EXPECT_EQ(releasing.stats()->allocated_bytes.current, 0u);
  Free(block);
}

// Each rank's part of the call has a thread of its own.
TEST_F(UserFunctions, FreeInACallForSeveralPools) {
  void* block = other_.allocate(MiB(3), nullptr).value().release();
  calls_.in_allocate = [&] { return commpool_free(block); };
  const commpool_pool pools[] = {user_.handle(), other_.handle()};
  ExpectOk(commpool_pools_reserve(pools, 2, MiB(64)));
  EXPECT_EQ(commpool_free(block), COMMPOOL_NOT_FOUND);
}

TEST_F(UserFunctions, LeaveTheLibraryAsItWas) {
  calls_.in_allocate = [&] { return Allocate(other_.handle()); };
  ASSERT_TRUE(user_.reserve(MiB(2)).ok()) << commpool_last_error();
  EXPECT_EQ(Allocate(other_.handle()), COMMPOOL_OK) << "outside of the function the thread may call again";
  EXPECT_EQ(block_, cached_) << "and has its cache again";
  Free(block_);
}

}  // namespace
}  // namespace commpool::internal::testing
