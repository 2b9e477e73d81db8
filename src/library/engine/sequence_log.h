// SequenceLog: the calls of a symmetric pool in order. Ranks compare its rolling hash; where the hashes differ, its
// last calls tell which call differed first. SymmetricEngine owns it.
//
// It holds only values that are equal on all ranks: kinds and sizes, never addresses or streams. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "src/library/base/field_list.h"

namespace commpool::internal::engine {

enum class SequenceCall : uint8_t {
  kAllocate,
  kRefused,
  kFree,
  kReserve,
  kReclaim,
  kTrim,
  kRegister,
  kDeregister,
  kSleep,
  kWake
};

// One call of the sequence. It goes to other ranks as it is.
struct SequenceEntry {
  uint64_t number = 0;  // 0 is the pool's first call
  SequenceCall call = SequenceCall::kAllocate;
  uint64_t value = 0;       // bytes, the freed block's sequence number, a registration's number, or (reclaim) a count
  uint64_t hash_after = 0;  // over every call up to this one

  // In the order of the wire format.
  using Fields =
      FieldList<&SequenceEntry::number, &SequenceEntry::call, &SequenceEntry::value, &SequenceEntry::hash_after>;
};

// Such as "allocate".
const char* Name(SequenceCall call);
// Such as "allocate 65,536 bytes (call 17)".
std::string Describe(const SequenceEntry& entry);

class SequenceLog {
 public:
  static constexpr uint64_t kKept = 256;

  void Append(SequenceCall call, uint64_t value);

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }
  // The call of that number, if it is one of the last kKept.
  std::optional<SequenceEntry> Entry(uint64_t number) const;

 private:
  uint64_t hash_ = 0x9e3779b97f4a7c15;
  uint64_t count_ = 0;
  std::array<SequenceEntry, kKept> kept_;
};

}  // namespace commpool::internal::engine
