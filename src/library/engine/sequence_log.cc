#include "src/library/engine/sequence_log.h"

namespace commpool::internal::engine {
namespace {

// splitmix64's finaliser. Every input bit changes every output bit, and no two inputs have the same output.
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

}  // namespace

const char* Name(SequenceCall call) { return kWords[static_cast<size_t>(call)].name; }

std::string Describe(const SequenceEntry& entry) {
  const auto place = static_cast<size_t>(entry.call);
  const Words words = place < kWords.size() ? kWords[place] : Words{"unknown call", nullptr};
  const bool counts = words.unit != nullptr && (entry.call != SequenceCall::kReclaim || entry.value != 0);
  return words.name + (counts ? " " + WithSeparators(entry.value) + words.unit : "") + " (call " +
         std::to_string(entry.number) + ")";
}

void SequenceLog::Append(SequenceCall call, uint64_t value) {
  // Mix runs after each part. With one Mix for all parts, calls in another order, or a value that moved from one part
  // to another, could give the same hash.
  hash_ = Mix(Mix(hash_ + static_cast<uint64_t>(call)) ^ value);
  kept_[count_ % kKept] = {count_, call, value, hash_};
  ++count_;
}

std::optional<SequenceEntry> SequenceLog::Entry(uint64_t number) const {
  if (number >= count_ || count_ - number > kKept) return std::nullopt;
  return kept_[number % kKept];
}

}  // namespace commpool::internal::engine
