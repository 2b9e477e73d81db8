#include "src/report/call_comparison.h"

#include <algorithm>
#include <functional>

#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

// Never 0, which stands for a call that no rank has told.
uint64_t HashOf(std::string_view text, uint64_t value) {
  const uint64_t mixed = (std::hash<std::string_view>()(text) ^ value) * 0x9e3779b97f4a7c15;
  return (mixed ^ mixed >> 32) + value * 2 + 1 == 0 ? 1 : (mixed ^ mixed >> 32) + value * 2 + 1;
}

}  // namespace

std::string DescribeCall(std::string_view text, uint64_t value) {
  const std::string words = std::string(text) + " " + InThousands(value);
  const bool of_bytes = text.starts_with("allocate") || text.starts_with("reserve") || text.starts_with("refused");
  return of_bytes ? words + " bytes" : words;
}

void CallComparison::Take(Channel channel, uint64_t number, std::string_view text, uint64_t value) {
  Sequence& sequence = sequences_[channel];
  if (number >= sequence.difference) return;
  if (sequence.chunks.size() >= kMostChunks && !sequence.chunks.contains(number / kOfChunk)) return;
  std::unique_ptr<Chunk>& chunk = sequence.chunks[number / kOfChunk];
  if (chunk == nullptr) chunk = std::make_unique<Chunk>();
  uint64_t& known = (*chunk)[number % kOfChunk];
  const uint64_t hash = HashOf(text, value);
  if (known == 0) known = hash;
  if (known != hash) sequence.difference = number;
}

std::optional<uint64_t> CallComparison::FirstDifference(Channel channel) const {
  const auto found = sequences_.find(channel);
  if (found == sequences_.end() || found->second.difference == UINT64_MAX) return std::nullopt;
  return found->second.difference;
}

}  // namespace commpool::internal::report
