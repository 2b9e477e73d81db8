// What follows from the intents of all ranks: the one place that compares them. Pure.
#ifndef COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_
#define COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/registration/intent.h"

namespace commpool::internal {

// One of three: the ranks agree, they do not, or their sequences differ and who differs from rank 0 has to be traced.
struct IntentVerdict {
  Status failure = {};
  bool diverged = false;     // the failure is a difference between the sequences
  uint64_t traced_rank = 0;  // 0: none
  Agreed agreed = {};
};

// Intents as they came, rank 0's first. The claims are not judged yet.
IntentVerdict CompareIntents(const std::vector<std::optional<Intent>>& intents);

std::string Encode(const IntentVerdict& verdict);
std::optional<IntentVerdict> DecodeVerdict(std::string_view bytes);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_
