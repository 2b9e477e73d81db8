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

// "65,536".
std::string WithSeparators(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t place = text.size(); place > 3;) {
    place -= 3;
    text.insert(place, ",");
  }
  return text;
}

std::string DescribeCall(SequenceCall call, uint64_t value) {
  const std::string number = WithSeparators(value);
  switch (call) {
    case SequenceCall::kAllocate:
      return "allocate " + number + " bytes";
    case SequenceCall::kRefused:
      return "refused allocation of " + number + " bytes";
    case SequenceCall::kFree:
      return "free of block " + number;
    case SequenceCall::kReserve:
      return "reserve " + number + " bytes";
    case SequenceCall::kReclaim:
      return value == 0 ? "reclaim" : "reclaim " + number;
    case SequenceCall::kTrim:
      return "trim to " + number + " bytes";
    case SequenceCall::kRegister:
      return "registration " + number;
    case SequenceCall::kDeregister:
      return "deregistration " + number;
    case SequenceCall::kSleep:
      return "sleep";
    case SequenceCall::kWake:
      return "wake";
  }
  return "unknown call";
}

}  // namespace

std::string Describe(const SequenceEntry& entry) {
  return DescribeCall(entry.call, entry.value) + " (call " + std::to_string(entry.number) + ")";
}

void SequenceLog::Append(SequenceCall call, uint64_t value) {
  // The hash goes in first and is mixed after each part, so that neither the order of calls nor which part a value
  // belongs to can cancel out.
  hash_ = Mix(Mix(hash_ + static_cast<uint64_t>(call)) ^ value);
  kept_[count_ % kKept] = {count_, call, value, hash_};
  ++count_;
}

std::optional<SequenceEntry> SequenceLog::Entry(uint64_t number) const {
  if (number >= count_ || count_ - number > kKept) return std::nullopt;
  return kept_[number % kKept];
}

}  // namespace commpool::internal::engine
