#include "src/report/span_replay.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal::report {

namespace {

// Of a rank; ranks keep the same ones, so that they still have them in common.
constexpr size_t kMostMeetings = 50'000;

// "growth of 4 MiB": the number of a growth or a search is what was asked for.
std::string NameOf(const recording::SpanBegan& entry, const std::string& text) {
  const bool of_bytes = entry.kind == recording::SpanKind::kGrowth || entry.kind == recording::SpanKind::kSearch;
  return of_bytes && entry.number > 0 ? text + " of " + FormatBytes(entry.number) : text;
}

}  // namespace

void SpanReplay::Take(int64_t time, const recording::SpanBegan& entry, const PoolReplay& pools) {
  const auto [place, fresh] = open_.try_emplace(entry.span);
  Open& open = place->second;
  if (!fresh) {
    const bool retold = eras_->Retells(open.life(), time, entry.age);
    open.era = eras_->now();
    if (retold) return;
  }
  open.era = eras_->now();
  open.event = {.kind = static_cast<EventKind>(entry.kind),
                .pool = pools.IndexOf(entry.pool),
                .from = eras_->Begin(time, entry.age).from,
                .text = NameOf(entry, texts_->TextOf(entry.text)),
                .home = entry.home,
                .number = entry.number};
  if (entry.kind > recording::SpanKind::kGrowth) open_.erase(place);
}

void SpanReplay::Take(int64_t time, const recording::SpanEnded& entry) {
  const auto found = open_.find(entry.span);
  if (found == open_.end()) return;
  EventModel event = std::move(found->second.event);
  open_.erase(found);
  event.to = time;
  if (entry.failure != 0) {
    event.outcome = Outcome::kFailed;
    const std::string& failure = texts_->TextOf(entry.failure);
    if (!failure.empty()) event.text += (event.text.empty() ? "" : ": ") + failure;
  }
  End(std::move(event));
}

void SpanReplay::End(EventModel event) {
  NoteSleep(event);
  NoteMeeting(event);
  kept_->Offer(rank_, std::move(event));
}

void SpanReplay::NoteSleep(const EventModel& event) {
  if (event.outcome == Outcome::kFailed || event.pool == kNone || event.to == kUnknown) return;
  std::vector<SleepModel>& asleep = rank().pools[event.pool].asleep;
  if (event.kind == EventKind::kSleep) asleep.push_back({event.to, kUnknown});
  if (event.kind != EventKind::kWake) return;
  // It may have fallen asleep before what is known.
  if (asleep.empty() || asleep.back().to != kUnknown) asleep.push_back({kUnknown, kUnknown});
  asleep.back().to = event.to;
}

void SpanReplay::NoteMeeting(const EventModel& event) {
  if (event.kind != EventKind::kAgreement || event.home == 0) return;
  uint64_t& last = rank().last_agreements[event.home];
  last = std::max(last, event.number);
  if (event.number % stride_ != 0) return;
  std::vector<Meeting>& meetings = rank().meetings;
  // A failed one says nothing of clocks, but who came.
  const int64_t to = event.outcome == Outcome::kFailed ? kUnknown : event.to;
  meetings.push_back({event.home, event.number, event.from, to});
  if (meetings.size() < kMostMeetings) return;
  stride_ *= 2;
  std::erase_if(meetings, [&](const Meeting& meeting) { return meeting.number % stride_ != 0; });
}

void SpanReplay::Finish() {
  for (auto& [span, open] : open_) {
    if (!eras_->Knows(open.life())) open.event.to = eras_->EndOf(open.life());
    End(std::move(open.event));
  }
  open_.clear();
}

}  // namespace commpool::internal::report
