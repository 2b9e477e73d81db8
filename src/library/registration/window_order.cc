#include "src/library/registration/window_order.h"

#include <algorithm>
#include <utility>

namespace commpool::internal {

uint64_t WindowLayout::LowestGap(uint64_t bytes) const {
  uint64_t from = 0;
  for (auto taken = taken_.begin(); taken != taken_.end() && taken->first < from + bytes; ++taken) {
    from = RoundUp(taken->second, kGranularity);
  }
  return from;
}

uint32_t WindowLayout::NextRecord() const {
  return open_pages_.empty() ? pages_ * kRecordsOfPage
                             : *free_records_.lower_bound(open_pages_.back() * kRecordsOfPage);
}

void WindowLayout::TakeAddresses(uint64_t from, uint64_t to) {
  for (const auto& [offset, end] : std::map(taken_)) {
    if (offset >= to) break;
    if (end <= from) continue;
    // What counted as somebody else's: its other parts still do.
    taken_.erase(offset);
    if (offset < from) taken_.emplace(offset, from);
    if (end > to) taken_.emplace(to, end);
  }
  taken_.emplace(from, to);
}

void WindowLayout::OpenPages(uint32_t count) {
  for (; pages_ < count; ++pages_) {
    open_pages_.push_back(pages_);
    for (uint32_t record = 0; record < kRecordsOfPage; ++record) {
      free_records_.insert(pages_ * kRecordsOfPage + record);
    }
  }
}

void WindowLayout::TakeRecord(uint32_t record) {
  const uint32_t page = record / kRecordsOfPage;
  free_records_.erase(record);
  const auto next = free_records_.lower_bound(page * kRecordsOfPage);
  if (next == free_records_.end() || *next / kRecordsOfPage != page) std::erase(open_pages_, page);
}

WindowSpot WindowLayout::Add(uint64_t bytes) {
  const WindowSpot spot = Next(bytes);
  Learn(bytes, spot);
  return spot;
}

void WindowLayout::Learn(uint64_t bytes, const WindowSpot& spot) {
  // Gaps and records that NCCL passed over are not free.
  for (uint64_t gap = LowestGap(bytes); gap < spot.offset; gap = LowestGap(bytes)) {
    const auto next = taken_.lower_bound(gap);
    TakeAddresses(gap, next == taken_.end() ? spot.offset : std::min(next->first, spot.offset));
  }
  TakeAddresses(spot.offset, spot.offset + bytes);
  OpenPages(spot.record / kRecordsOfPage + 1);
  const bool was_free = free_records_.contains(spot.record);
  while (was_free && NextRecord() != spot.record) TakeRecord(NextRecord());
  TakeRecord(spot.record);
}

void WindowLayout::Remove(const WindowSpot& spot) {
  taken_.erase(spot.offset);
  const uint32_t page = spot.record / kRecordsOfPage;
  if (std::find(open_pages_.begin(), open_pages_.end(), page) == open_pages_.end()) open_pages_.push_back(page);
  free_records_.insert(spot.record);
}

namespace {

// A search of more costs time that a program notices.
constexpr size_t kMostSearched = 64;

// Enough for windows that come back in a row, of which each step tries all, and for some that make way for each other.
size_t MostTries(size_t windows) { return 1000 + windows * windows; }

using Spots = std::vector<std::optional<WindowSpot>>;  // of each window; none where it is not registered

struct State {
  WindowLayout layout;
  Spots spots;
  std::vector<WindowStep> steps = {};
};

// Where most windows are back the search goes on first; of two such states where fewer steps led to.
std::optional<std::vector<WindowStep>> Search(const WindowLayout& layout, const std::vector<PlacedWindow>& windows) {
  const auto is_back = [&](const State& state, size_t window) { return state.spots[window] == windows[window].spot; };
  std::multimap<std::pair<size_t, size_t>, State> waiting;  // by the windows that are away, and the steps
  std::set<Spots> seen;
  const auto offer = [&](State state) {
    if (!seen.insert(state.spots).second) return;
    size_t away = 0;
    for (size_t window = 0; window < windows.size(); ++window) away += is_back(state, window) ? 0 : 1;
    const size_t steps = state.steps.size();
    waiting.emplace(std::pair(away, steps), std::move(state));
  };
  offer({.layout = layout, .spots = Spots(windows.size())});
  for (size_t tries = 0; !waiting.empty() && tries < MostTries(windows.size());) {
    const auto first = waiting.extract(waiting.begin());
    const State& state = first.mapped();
    if (first.key().first == 0) return state.steps;
    for (size_t window = 0; window < windows.size(); ++window) {
      if (is_back(state, window)) continue;
      ++tries;
      State next = state;
      std::optional<WindowSpot>& spot = next.spots[window];
      if (spot) {  // it only fills a gap
        next.layout.Remove(*spot);
        spot.reset();
        next.steps.push_back({WindowStep::Act::kEnd, window});
      } else {
        spot = next.layout.Add(windows[window].bytes);
        next.steps.push_back({WindowStep::Act::kRegister, window});
      }
      offer(std::move(next));
    }
  }
  return std::nullopt;
}

// Each window in a row where it comes to the lowest place that is left, as after windows that never ended. Nothing
// where one would come elsewhere.
std::optional<std::vector<WindowStep>> InARow(WindowLayout layout, const std::vector<PlacedWindow>& windows) {
  std::vector<WindowStep> steps;
  for (size_t window = 0; window < windows.size(); ++window) steps.push_back({WindowStep::Act::kRegister, window});
  std::ranges::sort(steps, {}, [&](const WindowStep& step) { return windows[step.window].spot; });
  for (const WindowStep& step : steps) {
    if (layout.Add(windows[step.window].bytes) != windows[step.window].spot) return std::nullopt;
  }
  return steps;
}

}  // namespace

std::optional<std::vector<WindowStep>> FindWindowOrder(const WindowLayout& layout,
                                                       const std::vector<PlacedWindow>& windows) {
  if (std::optional<std::vector<WindowStep>> steps = InARow(layout, windows)) return steps;
  if (windows.size() > kMostSearched) return std::nullopt;
  return Search(layout, windows);
}

}  // namespace commpool::internal
