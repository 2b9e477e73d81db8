// A caller's all_gather is the program's own function. Its exception becomes a failure of the call, in any round. Its
// calls of commpool are refused, except frees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "commpool/pool.h"
#include "commpool/pool_group.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool {
namespace {

using internal::testing::SharedDriver;

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

class AllGather : public internal::testing::DriverTest {
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
    PoolOptions options;
    options.symmetric_across = home_;
    options.agreement = {Gathering::Gather, &gathering};
    return options;
  }
  // Even for a pool with broken rounds.
  void End(Pool& pool) {
    gathering_.ActIn(0, {});
    EXPECT_EQ(commpool_pool_abandon(pool.handle(), home_, COMMPOOL_LIFE_ALIVE), COMMPOOL_OK) << commpool_last_error();
    EXPECT_EQ(commpool_pool_close(pool.handle()), COMMPOOL_OK) << commpool_last_error();
  }
  static void Expect(commpool_status status, commpool_status expected, const char* fragment) {
    EXPECT_EQ(status, expected) << commpool_last_error();
    EXPECT_NE(std::strstr(commpool_last_error(), fragment), nullptr) << commpool_last_error();
  }
  static size_t MemoryOfTheDriver() {
    const std::vector<std::string> live = internal::testing::EmulatorLeaks();
    return static_cast<size_t>(std::count_if(live.begin(), live.end(), [](const std::string& line) {
      return line.find("physical memory") != std::string::npos;
    }));
  }
  std::vector<std::pair<const char*, std::function<commpool_status()>>> RefusedCalls() {
    return {
        {"verify", [&] { return commpool_pool_verify(pool_->handle()); }},
        {"allocate outside of scopes", [&] { return commpool_allocate(0, 4096, nullptr, &block_); }},
        {"reserve another pool", [&] { return commpool_pool_reserve(other_->handle(), MiB(2)); }},
        {"close", [&] { return commpool_pool_close(pool_->handle()); }},
        {"destroy", [&] { return commpool_pool_destroy(pool_->handle()); }},
        {"initialize", [&] { return commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING); }},
    };
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
    Expect(commpool_pool_reserve(pool.handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "no luck");
    gathering.ActIn(0, {});
    Expect(commpool_pool_reserve(pool.handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "an earlier call failed");
    EXPECT_EQ(gathering.calls, 0);
    End(pool);
  }
}

TEST_F(AllGather, ThatThrowsAfterRegistrationLeavesMappedWhatNcclHolds) {
  gathering_.ActIn(kCallsOfAGrowth, [] { throw std::runtime_error("no luck"); });
  Expect(commpool_pool_reserve(pool_->handle(), MiB(2)), COMMPOOL_REMOTE_FAILURE, "no luck");
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
    Expect(commpool_pool_reserve(pool.handle(), MiB(4)), COMMPOOL_DISAGREEMENT, "unreadable");
    gathering.silent_from = 0;
    EXPECT_EQ(commpool_pool_close(pool.handle()), COMMPOOL_OK) << commpool_last_error();
    EXPECT_EQ(MemoryOfTheDriver(), before) << "silent from call " << call;
  }
}

TEST_F(AllGather, MayThrowWhatIsNoException) {
  gathering_.ActIn(1, [] { throw 42; });
  Expect(commpool_pool_verify(pool_->handle()), COMMPOOL_REMOTE_FAILURE, "threw something");
}

TEST_F(AllGather, MayThrowOnAThreadOfTheLibrarys) {
  Gathering gathering;
  PoolGroup pools = PoolGroup::create({OptionsOver(gathering_), OptionsOver(gathering)}).value();
  for (Gathering* one : {&gathering_, &gathering}) one->ActIn(1, [] { throw 42; });
  const Status status = pools.trim().status();
  EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
  EXPECT_NE(status.message().find("threw something"), std::string::npos) << status.message();
}

TEST_F(AllGather, IsRefusedEveryCallButAFree) {
  for (const auto& [name, call] : RefusedCalls()) {
    commpool_status answer = COMMPOOL_OK;
    std::string sentence;
    gathering_.ActIn(1, [&, &make = call] {
      answer = make();
      sentence = commpool_last_error();
    });
    EXPECT_EQ(commpool_pool_verify(pool_->handle()), COMMPOOL_OK) << name << ": " << commpool_last_error();
    EXPECT_EQ(answer, COMMPOOL_FAILED_PRECONDITION) << name;
    EXPECT_NE(sentence.find("commpool was called by a pool's all_gather"), std::string::npos) << name << sentence;
  }
}

// A garbage collector that runs inside a Python function may free anything.
TEST_F(AllGather, MayFreeAlsoTheLastBlockOfADestroyedPool) {
  ASSERT_TRUE(pool_->reserve(MiB(2)).ok()) << commpool_last_error();
  ASSERT_EQ(commpool_pool_allocate(pool_->handle(), 4096, nullptr, &block_), COMMPOOL_OK);
  void* last = nullptr;
  ASSERT_EQ(commpool_pool_allocate(other_->handle(), MiB(4), nullptr, &last), COMMPOOL_OK);
  other_.reset();
  std::vector<commpool_status> answers;
  gathering_.ActIn(1, [&] { answers = {commpool_free(block_), commpool_free(last)}; });
  EXPECT_EQ(commpool_pool_reclaim(pool_->handle(), nullptr), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(answers, (std::vector<commpool_status>{COMMPOOL_OK, COMMPOOL_OK})) << commpool_last_error();
}

}  // namespace
}  // namespace commpool
