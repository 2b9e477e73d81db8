// The first call at which the sequences of a symmetric pool differ between ranks (rule 4).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/report/model.h"

namespace commpool::internal::report {

// A symmetric pool on all ranks: its home's number, and its own there.
using Channel = std::pair<uint64_t, uint64_t>;

std::string DescribeCall(std::string_view text, uint64_t value);

// Remembers of each call a hash, as the first rank made it. A rank that ended earlier than others does not differ.
class CallComparison {
 public:
  void Take(Channel channel, uint64_t number, std::string_view text, uint64_t value);
  // The first call that differs; nothing where all ranks agree.
  std::optional<uint64_t> FirstDifference(Channel channel) const;

 private:
  static constexpr uint64_t kOfChunk = 512;
  static constexpr size_t kMostChunks = 1 << 17;  // 64 million calls of a pool
  using Chunk = std::array<uint64_t, kOfChunk>;
  struct Sequence {
    std::unordered_map<uint64_t, std::unique_ptr<Chunk>> chunks;
    uint64_t difference = UINT64_MAX;
  };

  std::map<Channel, Sequence> sequences_;
};

}  // namespace commpool::internal::report
