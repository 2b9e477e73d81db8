#include "src/emulator/cuda/clock.h"

#include <algorithm>

namespace commpool::internal::emulator {

namespace {

bool IsBefore(const Moment& moment, uint64_t component) { return moment.component < component; }

}  // namespace

uint64_t Clock::Of(uint64_t component) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), component, IsBefore);
  return found == entries_.end() || found->component != component ? 0 : found->count;
}

void Clock::Set(const Moment& moment) {
  if (moment.count == 0) return;
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), moment.component, IsBefore);
  if (found != entries_.end() && found->component == moment.component) {
    found->count = moment.count;
  } else {
    entries_.insert(found, moment);
  }
}

bool Clock::Covers(const Clock& other) const {
  return std::all_of(other.entries_.begin(), other.entries_.end(),
                     [&](const Moment& moment) { return Covers(moment); });
}

void Clock::Join(const Clock& other) {
  const size_t known = entries_.size();
  size_t place = 0;
  for (const Moment& moment : other.entries_) {
    while (place < known && entries_[place].component < moment.component) ++place;
    if (place < known && entries_[place].component == moment.component) {
      entries_[place].count = std::max(entries_[place].count, moment.count);
    } else {
      entries_.push_back(moment);
    }
  }
  if (entries_.size() == known) return;
  std::inplace_merge(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(known), entries_.end(),
                     [](const Moment& a, const Moment& b) { return a.component < b.component; });
}

std::vector<uint64_t> Clock::ToWords() const {
  std::vector<uint64_t> words;
  words.reserve(2 * entries_.size());
  for (const Moment& moment : entries_) words.insert(words.end(), {moment.component, moment.count});
  return words;
}

Clock Clock::FromWords(const uint64_t* words, size_t count) {
  Clock clock;
  for (size_t index = 0; index + 1 < count; index += 2) {
    const Moment moment{words[index], words[index + 1]};
    if (!clock.Covers(moment)) clock.Set(moment);
  }
  return clock;
}

}  // namespace commpool::internal::emulator
