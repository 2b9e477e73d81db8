// What recordings of a symmetric pool's ranks hold: the same calls and agreements on each, and its windows.
#include <algorithm>

#include "tests/recording/recorded_entries.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

using recording::testing::Folder;
using recording::testing::ReadRecording;

// All ranks are threads of this process, so one recording has them all: pools differ by their numbers.
class SymmetricRecording : public SymmetricTest {
 protected:
  void Prepare() override { ExpectOk({runtime().Record({.directory = folder_.path()}, 0)}); }
  recording::testing::Recording Recorded() {
    runtime().recorder().Stop();
    return ReadRecording(folder_.File());
  }

 private:
  const Folder folder_;
};

TEST_F(SymmetricRecording, FindsAPoolOnEveryRankByItsPlace) {
  ExpectOk(Create());
  const auto made = Recorded().All<recording::PoolMade>();
  ASSERT_EQ(made.size(), static_cast<size_t>(group().size()));
  EXPECT_NE(made[0].home, 0u);
  for (const auto& pool : made) {
    EXPECT_EQ(pool.home, made[0].home);
    EXPECT_EQ(pool.channel, made[0].channel);
  }
}

TEST_F(SymmetricRecording, HasTheSameCallsOnEveryRank) {
  CreateAndReserve(4 * kMiB);
  Free(Allocate(100 * kKiB));
  ExpectOk(Reclaim());
  const auto read = Recorded();
  std::map<uint64_t, std::string> by_pool;
  for (const auto& call : read.All<recording::Call>()) {
    by_pool[call.pool] += read.texts.at(call.text) + " " + std::to_string(call.value) + "\n";
  }
  ASSERT_EQ(by_pool.size(), static_cast<size_t>(group().size()));
  for (const auto& [pool, calls] : by_pool) EXPECT_EQ(calls, by_pool.begin()->second);
  EXPECT_NE(by_pool.begin()->second.find("reserve 4194304\n"), std::string::npos) << by_pool.begin()->second;
  EXPECT_NE(by_pool.begin()->second.find("allocate 102400\n"), std::string::npos);
}

TEST_F(SymmetricRecording, NumbersAgreementsAlikeOnEveryRank) {
  CreateAndReserve(4 * kMiB);
  const auto read = Recorded();
  std::map<uint64_t, std::string> by_pool;
  uint64_t ended = 0;
  for (const auto& span : read.All<recording::SpanBegan>()) {
    if (span.kind != recording::SpanKind::kAgreement) continue;
    by_pool[span.pool] += std::to_string(span.home) + ":" + std::to_string(span.number) + read.texts.at(span.text);
    for (const auto& end : read.All<recording::SpanEnded>()) ended += end.span == span.span ? 1 : 0;
  }
  ASSERT_EQ(by_pool.size(), static_cast<size_t>(group().size()));
  for (const auto& [pool, agreements] : by_pool) EXPECT_EQ(agreements, by_pool.begin()->second);
  EXPECT_GE(ended, 3u * static_cast<size_t>(group().size()));
}

TEST_F(SymmetricRecording, HasEachRequestThatFoundNoMemory) {
  CreateAndReserve(4 * kMiB);
  ExpectFailure(
      Run([&](Rank& rank) { return runtime().AllocateFrom(HandleOf(rank), 64 * kMiB, rank.stream).status(); }),
      StatusCode::kExhausted, "64 MiB");
  const auto read = Recorded();
  uint64_t failed = 0;
  for (const auto& span : read.All<recording::SpanBegan>()) {
    if (span.kind != recording::SpanKind::kSearch) continue;
    EXPECT_EQ(span.number, 64 * kMiB);
    for (const auto& end : read.All<recording::SpanEnded>())
      failed += end.span == span.span && end.failure != 0 ? 1 : 0;
  }
  EXPECT_EQ(failed, static_cast<size_t>(group().size()));
}

TEST_F(SymmetricRecording, HasWindowsUntilTheirEnd) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(Trim(0));
  const auto read = Recorded();
  const auto made = read.All<recording::Registered>();
  ASSERT_EQ(made.size(), static_cast<size_t>(group().size()));
  EXPECT_EQ(made[0].kind, recording::RegistrationEntry::kWindow);
  EXPECT_EQ(made[0].bytes, 4 * kMiB);
  EXPECT_EQ(read.All<recording::Deregistered>().size(), made.size());
}

TEST_F(SymmetricRecording, TellsAgainInAnotherHomeWhatAPoolHas) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  CreateAndReserve(4 * kMiB);
  for (int time = 0; time < 4; ++time) Free(Allocate(100 * kKiB));
  MoveHome();
  Free(Allocate(kMiB));
  const auto read = Recorded();
  std::map<uint64_t, std::vector<std::string>> since_made;  // by pool
  for (const auto& one : read.entries) {
    const recording::Event* const event = &one.entry;
    if (const auto* made = std::get_if<recording::PoolMade>(event)) since_made[made->pool] = {};
    if (const auto* made = std::get_if<recording::SegmentMade>(event)) since_made[made->pool].push_back("segment");
    if (const auto* made = std::get_if<recording::Registered>(event)) since_made[made->pool].push_back("window");
  }
  ASSERT_EQ(since_made.size(), static_cast<size_t>(group().size()));
  for (const auto& [pool, told] : since_made) EXPECT_EQ(told, (std::vector<std::string>{"segment", "window"}));
  const auto calls = read.All<recording::Call>();
  const auto in_the_new =
      std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call.value == kMiB; });
  EXPECT_EQ(in_the_new, group().size()) << "another home begins another sequence of calls";
}

}  // namespace
}  // namespace commpool::internal::testing
