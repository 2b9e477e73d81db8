// What a round says and hears in which several pools of a home take part at once: values, and their bytes.
//
// A rank that calls for one pool alone says its words as they are. So each of the two kinds of call can tell the other
// that they do not go together: by a decision that both can read.
#ifndef COMMPOOL_SRC_REGISTRATION_JOINED_MESSAGE_H_
#define COMMPOOL_SRC_REGISTRATION_JOINED_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "commpool/status.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/wire.h"

namespace commpool::internal {

struct JoinedPool {
  uint64_t channel = 0;  // its number in home; 0 where it has none
  std::string name = {};
  std::string said = {};
  static constexpr auto Fields() { return std::tuple(&JoinedPool::channel, &JoinedPool::name, &JoinedPool::said); }
};

// Of one rank.
struct JoinedWords {
  static constexpr const char* kName = "call for several pools";
  Status ended = {};  // why a pool of the call has ended by itself, if one has: the others may not go on
  std::vector<JoinedPool> pools = {};
  static constexpr auto Fields() { return std::tuple(&JoinedWords::ended, &JoinedWords::pools); }
};

// kDisagreement where the ranks do not speak for the same pools, in one order. OK where each speaks for one alone.
Status CheckSamePools(const std::vector<std::string>& contents);

// The decision of each pool by its own decider, and what follows for the others where one may not go on.
Decision DecideJoined(const std::vector<std::string>& contents, const std::vector<const Decider*>& deciders);

struct JoinedVerdict {
  static constexpr const char* kName = "decision for several pools";
  struct OfPool {
    bool refused = false;  // its own decision is that it does not go on
    std::string common = {};
    static constexpr auto Fields() { return std::tuple(&OfPool::refused, &OfPool::common); }
  };
  Status failure = {};  // of the round: nothing was decided
  Status beside = {};   // why one pool does not go on: for those that would
  std::vector<OfPool> pools = {};
  static constexpr auto Fields() {
    return std::tuple(&JoinedVerdict::failure, &JoinedVerdict::beside, &JoinedVerdict::pools);
  }
};

// Nothing where it cannot be read, or is of another number of pools.
std::optional<JoinedVerdict> DecodeJoinedVerdict(std::string_view bytes, size_t pools);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_JOINED_MESSAGE_H_
