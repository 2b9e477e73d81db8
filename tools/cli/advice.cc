#include "tools/cli/advice.h"

#include <algorithm>

namespace commpool::cli {

BufferKind BestKind(const KindTimes& times) {
  constexpr double kAsGood = 1.02;
  const auto by_time = [](const auto& one, const auto& other) { return one.second < other.second; };
  const double fastest = std::min_element(times.begin(), times.end(), by_time)->second;
  const auto cheapest =
      std::find_if(times.begin(), times.end(), [&](const auto& entry) { return entry.second <= fastest * kAsGood; });
  return cheapest->first;
}

double Gain(const KindTimes& times, BufferKind kind) {
  const auto plain = times.find(BufferKind::kPlain);
  return plain == times.end() ? 1.0 : plain->second / times.at(kind);
}

std::vector<AdviceRange> MakeRanges(const std::vector<AdviceRow>& rows) {
  std::vector<AdviceRange> ranges;
  for (const AdviceRow& row : rows) {
    const BufferKind kind = BestKind(row.times);
    const double gain = Gain(row.times, kind);
    if (!ranges.empty()) ranges.back().max_bytes = row.bytes - 1;
    if (ranges.empty() || ranges.back().kind != kind) ranges.push_back({row.bytes, row.bytes, kind, gain, gain});
    AdviceRange& range = ranges.back();
    range.max_bytes = row.bytes;
    range.least_gain = std::min(range.least_gain, gain);
    range.most_gain = std::max(range.most_gain, gain);
  }
  return ranges;
}

}  // namespace commpool::cli
