// Who made which call differently. Rank 0 compares what the ranks of a pool have published of their calls: they are at
// different places of one sequence, so only calls that both have published are compared. Pure, one thread.
#ifndef COMMPOOL_SRC_REGISTRATION_SEQUENCE_COMPARISON_H_
#define COMMPOOL_SRC_REGISTRATION_SEQUENCE_COMPARISON_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/engine/sequence_log.h"

namespace commpool::internal {

using Calls = std::vector<engine::SequenceEntry>;

// A rank's calls, ascending, as they travel.
struct PublishedCalls {
  static constexpr const char* kName = "list of calls";
  Calls calls = {};
  static constexpr auto Fields() { return std::tuple(&PublishedCalls::calls); }
};

// From rank 0.
struct PublishedDifference {
  static constexpr const char* kName = "difference";
  std::string difference = {};
  static constexpr auto Fields() { return std::tuple(&PublishedDifference::difference); }
};

// The first call that differs, from the last calls of rank 0 and of another.
std::string NameFirstDifferingCall(const Calls& of_rank_zero, const Calls& of_other, size_t other_rank);

class SequenceComparison {
 public:
  // Of one rank, where another is so far behind; older ones are forgotten. A difference among those shows in every
  // later call too, for the hashes roll.
  static constexpr size_t kMostKept = size_t{1} << 14;

  explicit SequenceComparison(int ranks) : published_(static_cast<size_t>(ranks)) {}

  // The rank's next calls, ascending; there may be a gap before and in them. Returns the first difference that they
  // show between rank 0 and another: "rank 0 made ..., rank 2 made ...".
  std::optional<std::string> Add(size_t rank, const Calls& calls);

  // The rank publishes no more: nothing is kept for it.
  void Forget(size_t rank);

  // Calls of all ranks that wait for another's.
  size_t kept() const;

 private:
  struct Published {
    bool gone = false;
    uint64_t compared = 0;                    // calls below it were the same as rank 0's
    std::deque<engine::SequenceEntry> calls;  // without gaps
  };

  static void Append(Published& published, const Calls& calls);
  std::optional<std::string> Compare(size_t rank);
  void DropCompared();

  std::vector<Published> published_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_SEQUENCE_COMPARISON_H_
