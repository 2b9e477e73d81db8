// Names the first call that differs between the sequences of two ranks, from the last calls of each. Pure.
#ifndef COMMPOOL_SRC_REGISTRATION_CALL_TRACING_H_
#define COMMPOOL_SRC_REGISTRATION_CALL_TRACING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace commpool::internal {

// One past call of a pool's sequence, as text and hash.
struct TracedCall {
  uint64_t number = 0;
  uint64_t hash_after = 0;
  std::string description;
};

std::string Encode(const std::vector<TracedCall>& calls);

// From the encoded last calls of rank 0 and of another.
std::string NameFirstDifferingCall(std::string_view of_rank_zero, std::string_view of_other, size_t other_rank);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_CALL_TRACING_H_
