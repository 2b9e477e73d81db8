#include "src/engine/sequence_log.h"

namespace commpool::internal::engine {
namespace {

// splitmix64's finaliser: a bijection of 64 bits in which every input bit reaches every output bit.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Such as "65,536".
std::string WithSeparators(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t place = text.size(); place > 3;) {
    place -= 3;
    text.insert(place, ",");
  }
  return text;
}

// A call's name, and the text behind its number; null where it has none.
struct Words {
  const char* name;
  const char* unit;
};

constexpr std::array kWords = {
    // in the order of SequenceCall
    Words{"allocate", " bytes"}, Words{"refused allocation of", " bytes"},
    Words{"free of block", ""},  Words{"reserve", " bytes"},
    Words{"reclaim", ""},        Words{"trim to", " bytes"},
    Words{"registration", ""},   Words{"deregistration", ""},
    Words{"sleep", nullptr},     Words{"wake", nullptr},
};

std::string DescribeCall(SequenceCall call, uint64_t value) {
  const auto place = static_cast<size_t>(call);
  if (place >= kWords.size()) return "unknown call";
  const Words& words = kWords[place];
  if (words.unit == nullptr || (call == SequenceCall::kReclaim && value == 0)) return words.name;
  return std::string(words.name) + " " + WithSeparators(value) + words.unit;
}

}  // namespace

std::string Describe(const SequenceEntry& entry) {
  return DescribeCall(entry.call, entry.value) + " (call " + std::to_string(entry.number) + ")";
}

void SequenceLog::Append(SequenceCall call, uint64_t value) {
  // The hash goes in first and is mixed after each part. So neither the order of calls, nor the part that a value
  // belongs to, can cancel out.
  hash_ = Mix(Mix(hash_ + static_cast<uint64_t>(call)) ^ value);
  kept_[count_ % kKept] = {count_, call, value, hash_};
  ++count_;
}

std::optional<SequenceEntry> SequenceLog::Entry(uint64_t number) const {
  if (number >= count_ || count_ - number > kKept) return std::nullopt;
  return kept_[number % kKept];
}

}  // namespace commpool::internal::engine
