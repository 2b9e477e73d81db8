#include "tools/stress/order/history.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace commpool::cli::stress_order {

namespace {

constexpr size_t kMostEntries = 8192;
constexpr size_t kMostShown = 16;

}  // namespace

std::vector<MemoryRange> RangesIn(const std::string& text) {
  std::vector<MemoryRange> ranges;
  for (size_t at = text.find("0x"); at != std::string::npos; at = text.find("0x", at + 2)) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(text.c_str() + at, "0x%llx to 0x%llx", &begin, &end) != 2 || end <= begin) continue;
    ranges.push_back({begin, end - begin});
  }
  return ranges;
}

void History::Note(uint64_t step, const MemoryRange& range, std::string text) {
  std::scoped_lock lock(mutex_);
  entries_.push_back({step, range, std::move(text)});
  if (entries_.size() > kMostEntries) entries_.pop_front();
}

std::vector<std::string> History::About(const MemoryRange& range) const {
  std::scoped_lock lock(mutex_);
  std::vector<std::string> lines;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && lines.size() < kMostShown; ++entry) {
    if (!entry->range.Overlaps(range)) continue;
    char text[96];
    std::snprintf(text, sizeof(text), "step %llu: 0x%llx, %llu bytes: ", static_cast<unsigned long long>(entry->step),
                  static_cast<unsigned long long>(entry->range.address),
                  static_cast<unsigned long long>(entry->range.bytes));
    lines.push_back(text + entry->text);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace commpool::cli::stress_order
