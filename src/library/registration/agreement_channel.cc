#include "src/library/registration/agreement_channel.h"

#include <algorithm>
#include <cstring>

#include "src/library/base/try.h"
#include "src/library/base/user_function.h"

namespace commpool::internal {

namespace {

// The lengths come from the program's all-gather, which may be broken: what it makes up must not take the host's
// memory.
constexpr uint64_t kLongestMessage = uint64_t{1} << 26;
constexpr uint64_t kMostOfAllRanks = uint64_t{1} << 32;
constexpr UserFunctionKind kAllGather = {.name = "a pool's all_gather", .may_free = true};

// The channel over the program's all-gather: every rank gets all messages and decides for itself. The all-gather takes
// the same number of bytes from every rank. So ranks send their lengths first, and then contents padded to the longest.
class CallerChannel : public AgreementChannel {
 public:
  CallerChannel(int rank, int ranks, commpool_all_gather all_gather, void* context)
      : AgreementChannel(rank, ranks), all_gather_(all_gather), context_(context) {}

  Result<std::string> Decide(const std::string& mine, const std::string& step, const Decider& decide) override {
    if (broken_) return Failure(step + ": an earlier call failed");
    const uint64_t length = mine.size();
    std::vector<uint64_t> lengths(static_cast<size_t>(ranks()));
    COMMPOOL_TRY(Gather(&length, lengths.data(), sizeof(length), step));

    const uint64_t longest = std::ranges::max(lengths);
    if (longest > std::min(kLongestMessage, kMostOfAllRanks / lengths.size())) {
      return Failure(step + ": a rank announced " + std::to_string(longest) + " bytes");
    }
    std::string padded = mine;
    padded.resize(longest);
    std::string received(longest * static_cast<uint64_t>(ranks()), '\0');
    COMMPOOL_TRY(Gather(padded.data(), received.data(), longest, step));

    std::vector<std::string> contents;
    for (size_t index = 0; index < lengths.size(); ++index) {
      contents.push_back(received.substr(index * longest, lengths[index]));
    }
    return decide(contents);
  }
  void Break(const Status&) override { broken_ = true; }
  bool broken() const override { return broken_; }

 private:
  // An all-gather that throws counts as one that returns a failure: the ranks are out of step.
  Status Gather(const void* sent, void* received, uint64_t bytes, const std::string& step) {
    int result = 0;
    const Status called =
        CallUserFunction(kAllGather, "it", [&] { result = all_gather_(sent, received, bytes, context_); });
    if (!called.ok()) return Failure(step + ", where " + called.message());
    if (result == 0) return Status();
    const int64_t missing = -2 - int64_t{result};  // include/commpool/reference.md
    if (missing < 0 || missing >= ranks()) return Failure(step);
    return Failure(step + ", for which rank " + std::to_string(missing) + " did not come");
  }

  Status Failure(const std::string& step) {
    broken_ = true;
    return RemoteFailure("the all-gather function given for agreement failed at ", step, " (rank ", rank(), " of ",
                         ranks(), "); of an MpiAgreement status() says why");
  }

  const commpool_all_gather all_gather_;
  void* const context_;
  bool broken_ = false;
};

}  // namespace

Result<std::string> DecideTogether(const PoolChannels& channels, const std::string& mine, const std::string& step,
                                   const Decider& decide) {
  AgreementChannel* const carrier = *std::ranges::min_element(channels, {}, &AgreementChannel::number);
  Result<std::string> decision = carrier->Decide(mine, step, decide);
  if (decision.ok()) return decision;
  for (AgreementChannel* const channel : channels) channel->Break(decision.status());
  return decision;
}

std::unique_ptr<AgreementChannel> MakeSelfChannel() {
  const auto gather = [](const void* mine, void* all, size_t bytes, void*) {
    std::memcpy(all, mine, bytes);
    return 0;
  };
  return MakeCallerChannel(0, 1, gather, nullptr);
}

std::unique_ptr<AgreementChannel> MakeCallerChannel(int rank, int ranks, commpool_all_gather all_gather,
                                                    void* context) {
  return std::make_unique<CallerChannel>(rank, ranks, all_gather, context);
}

}  // namespace commpool::internal
