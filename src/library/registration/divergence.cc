#include "src/library/registration/divergence.h"

#include <algorithm>
#include <utility>

#include "src/library/base/failure.h"
#include "src/library/registration/wire.h"

namespace commpool::internal {

namespace {

std::string Made(size_t rank, const engine::SequenceEntry& call) { return RankName(rank) + " made " + Describe(call); }

// Null where it is not among them.
const engine::SequenceEntry* Find(const Calls& calls, uint64_t number) {
  const auto found = std::ranges::find(calls, number, &engine::SequenceEntry::number);
  return found == calls.end() ? nullptr : &*found;
}

}  // namespace

// A hash covers all calls up to its own. So the first call whose hashes differ is the first that was different.
std::string NameFirstDifferingCall(const Calls& of_rank_zero, const Calls& of_other, size_t other_rank) {
  for (const engine::SequenceEntry& call : of_rank_zero) {
    const engine::SequenceEntry* const match = Find(of_other, call.number);
    if (match == nullptr || match->hash_after == call.hash_after) continue;
    return Made(0, call) + ", " + Made(other_rank, *match);
  }
  const auto end_of = [](const Calls& calls) { return calls.empty() ? 0 : calls.back().number + 1; };
  const bool other_is_longer = end_of(of_other) > end_of(of_rank_zero);
  const Calls& longer = other_is_longer ? of_other : of_rank_zero;
  const engine::SequenceEntry* const extra = Find(longer, std::min(end_of(of_other), end_of(of_rank_zero)));
  if (extra == nullptr) return "the first difference is older than the calls that are kept";
  return RankName(other_is_longer ? other_rank : 0) + " also made " + Describe(*extra);
}

Status SequencesDiffer(const std::string& difference) {
  return Disagreement("the sequences of calls differ, so blocks are at different offsets: ", difference);
}

std::optional<std::string> SequenceComparison::Add(size_t rank, const Calls& calls) {
  Append(published_[rank], calls);
  std::optional<std::string> difference;
  if (rank != 0) difference = Compare(rank);
  for (size_t other = 1; rank == 0 && !difference && other < published_.size(); ++other) difference = Compare(other);
  DropCompared();
  return difference;
}

void SequenceComparison::Forget(size_t rank) {
  published_[rank].gone = true;
  published_[rank].calls.clear();
  DropCompared();
}

size_t SequenceComparison::kept() const {
  size_t calls = 0;
  for (const Published& published : published_) calls += published.calls.size();
  return calls;
}

void SequenceComparison::Append(Published& published, const Calls& calls) {
  for (const engine::SequenceEntry& call : calls) {
    const bool follows = published.calls.empty() || published.calls.back().number + 1 == call.number;
    if (!follows) published.calls.clear();
    published.calls.push_back(call);
    if (published.calls.size() > kMostKept) published.calls.pop_front();
  }
}

std::optional<std::string> SequenceComparison::Compare(size_t rank) {
  const std::deque<engine::SequenceEntry>& first = published_[0].calls;
  Published& other = published_[rank];
  if (other.gone || first.empty() || other.calls.empty()) return std::nullopt;
  const uint64_t begin = std::max({other.compared, first.front().number, other.calls.front().number});
  const uint64_t end = std::min(first.back().number, other.calls.back().number) + 1;
  for (uint64_t number = begin; number < end; ++number) {
    const engine::SequenceEntry& expected = first[number - first.front().number];
    const engine::SequenceEntry& found = other.calls[number - other.calls.front().number];
    if (expected.hash_after == found.hash_after) {
      other.compared = number + 1;
      continue;
    }
    const std::string difference = Made(0, expected) + ", " + Made(rank, found);
    return number == other.compared ? difference : difference + ", or an earlier call was different";
  }
  return std::nullopt;
}

void SequenceComparison::DropCompared() {
  const auto drop = [](std::deque<engine::SequenceEntry>& calls, uint64_t below) {
    while (!calls.empty() && calls.front().number < below) calls.pop_front();
  };
  uint64_t by_all = UINT64_MAX;
  for (size_t rank = 1; rank < published_.size(); ++rank) {
    if (published_[rank].gone) continue;
    drop(published_[rank].calls, published_[rank].compared);
    by_all = std::min(by_all, published_[rank].compared);
  }
  drop(published_[0].calls, by_all);
}

Status Divergence::status() const {
  if (!known()) return Status();
  MutexLock lock(mutex_);
  return first_;
}

void Divergence::Note(const Status& difference) {
  MutexLock lock(mutex_);
  if (!first_.ok()) return;
  first_ = difference;
  known_.store(!difference.ok(), std::memory_order_release);
}

void Divergence::Forget() {
  MutexLock lock(mutex_);
  first_ = Status();
  known_.store(false, std::memory_order_release);
}

Publisher::Publisher(int rank, int ranks, std::unique_ptr<BackgroundLine> line, Divergence& divergence)
    : rank_(rank), ranks_(ranks), line_(std::move(line)), divergence_(divergence), comparison_(ranks) {
  {
    MutexLock lock(mutex_);
    offered_.reserve(kMostOffered);
  }
  line_->Start([this] {
    PublishOffered();
    Hear();
  });
}

Publisher::~Publisher() { line_->Stop(); }

void Publisher::Offer(const engine::SequenceLog& log) {
  if (log.count() - offered_count_ < kEvery) return;
  {
    MutexLock lock(mutex_);
    for (; offered_count_ < log.count(); ++offered_count_) {
      const std::optional<engine::SequenceEntry> call = log.Entry(offered_count_);
      if (call && offered_.size() < kMostOffered) offered_.push_back(*call);
    }
  }
  line_->Wake();
}

Calls Publisher::TakeOffered() {
  MutexLock lock(mutex_);
  Calls taken = offered_;  // a copy, so that offered_ keeps its memory
  offered_.clear();
  return taken;
}

void Publisher::PublishOffered() {
  if (rank_ == 0) return Compare(0, TakeOffered());
  // While rank 0 has not taken what was sent before, calls stay in offered_, which has a limit.
  if (!line_->takes_more()) return;
  const PublishedCalls published{TakeOffered()};
  if (!published.calls.empty()) line_->Send(Encode(published));
}

void Publisher::Hear() {
  for (const BackgroundMessage& message : line_->Receive()) {
    if (rank_ == 0) {
      const auto rank = static_cast<size_t>(message.rank);
      const Result<PublishedCalls> published = Decode<PublishedCalls>(message.contents, rank);
      if (published.ok()) Compare(rank, published->calls);
    } else {
      const Result<PublishedDifference> told = Decode<PublishedDifference>(message.contents, 0);
      if (told.ok()) divergence_.Note(SequencesDiffer(told->difference));
    }
  }
  for (int other = 1; rank_ == 0 && other < ranks_; ++other) {
    if (line_->HasGone(other)) comparison_.Forget(static_cast<size_t>(other));
  }
}

void Publisher::Compare(size_t rank, const Calls& calls) {
  if (calls.empty() || divergence_.known()) return;
  const std::optional<std::string> difference = comparison_.Add(rank, calls);
  if (!difference) return;
  divergence_.Note(SequencesDiffer(*difference));
  line_->Send(Encode(PublishedDifference{*difference}));
}

}  // namespace commpool::internal
