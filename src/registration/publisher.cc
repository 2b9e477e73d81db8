#include "src/registration/publisher.h"

#include <optional>
#include <utility>

#include "src/registration/wire.h"

namespace commpool::internal {

std::unique_ptr<Publisher> Publisher::Start(int rank, int ranks, std::unique_ptr<BackgroundLine> line,
                                            Divergence& divergence) {
  if (line == nullptr) return nullptr;
  std::unique_ptr<Publisher> publisher(new Publisher(rank, ranks, std::move(line), divergence));
  publisher->line_->Start([&publishes = *publisher] { publishes.Work(); });
  return publisher;
}

Publisher::Publisher(int rank, int ranks, std::unique_ptr<BackgroundLine> line, Divergence& divergence)
    : rank_(rank), ranks_(ranks), line_(std::move(line)), divergence_(divergence), comparison_(ranks) {
  MutexLock lock(mutex_);
  offered_.reserve(kMostOffered);
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

void Publisher::Work() {
  PublishOffered();
  Hear();
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
