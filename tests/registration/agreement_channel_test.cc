#include "src/library/registration/agreement_channel.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/base/expect_status.h"
#include "tests/registration/joined.h"

namespace commpool::internal {
namespace {

TEST(SelfChannel, DecidesAlone) {
  const std::unique_ptr<AgreementChannel> channel = MakeSelfChannel();
  EXPECT_EQ(channel->rank(), 0);
  EXPECT_EQ(channel->ranks(), 1);
  EXPECT_EQ(JoinOver(*channel, "mine", "reserve").value(), "[mine]");
}

// The all-gather of a job of two ranks. This is rank 1; rank 0 always sends `other`.
struct Job {
  std::string other;
  int fail_at = 0;  // which call fails; 0: none
  int fail_with = 1;
  int calls = 0;
  uint64_t announces = 0;  // by rank 0, in place of its length
};

int GatherOfJob(const void* sent, void* received, size_t bytes, void* context) {
  Job& job = *static_cast<Job*>(context);
  if (++job.calls == job.fail_at) return job.fail_with;
  const bool lengths = job.calls % 2 == 1;
  auto* out = static_cast<char*>(received);
  std::memset(out, 0, bytes);
  const uint64_t length = job.announces != 0 ? job.announces : job.other.size();
  std::memcpy(out, lengths ? reinterpret_cast<const char*>(&length) : job.other.data(),
              lengths ? sizeof(length) : job.other.size());
  std::memcpy(out + bytes, sent, bytes);
  return 0;
}

TEST(CallerChannel, DecidesOnEveryRankFromBytesOfDifferentLengths) {
  Job job{.other = "the longer one"};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  EXPECT_EQ(JoinOver(*channel, "short", "reserve").value(), "[the longer one][short]");
  EXPECT_EQ(JoinOver(*channel, "", "reserve").value(), "[the longer one][]");
}

TEST(CallerChannel, NamesTheStepWhereTheFunctionFailed) {
  for (const int call : {1, 2}) {
    Job job{.other = "x", .fail_at = call};
    const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
    ExpectFailure(JoinOver(*channel, "mine", "reserve").status(), StatusCode::kRemoteFailure,
                  "failed at reserve (rank 1 of 2)");
  }
}

TEST(CallerChannel, NamesTheRankThatTheFunctionMisses) {
  Job job{.other = "x", .fail_at = 1, .fail_with = -2};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  const Status status = JoinOver(*channel, "mine", "reserve").status();
  EXPECT_NE(status.message().find("rank 0 did not come"), std::string::npos) << status.message();
}

TEST(CallerChannel, StaysBrokenAndCallsNothingMore) {
  Job job{.other = "x", .fail_at = 1};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  EXPECT_FALSE(JoinOver(*channel, "mine", "reserve").ok());
  const Status status = JoinOver(*channel, "mine", "trim").status();
  EXPECT_NE(status.message().find("an earlier call failed"), std::string::npos) << status.message();
  EXPECT_EQ(job.calls, 1);
}

TEST(CallerChannel, RefusesALengthThatCannotBe) {
  constexpr uint64_t kLongest = uint64_t{1} << 26;
  // Of many ranks, the same length is too much for all of them together.
  for (const auto& [ranks, announced] :
       {std::pair(2, UINT64_MAX), std::pair(2, kLongest + 1), std::pair(65, kLongest)}) {
    Job job{.other = "x", .announces = announced};
    const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, ranks, GatherOfJob, &job);
    ExpectFailure(JoinOver(*channel, "mine", "reserve").status(), StatusCode::kRemoteFailure, "announced");
    EXPECT_EQ(job.calls, 1) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace commpool::internal
