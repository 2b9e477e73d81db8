// What follows from the intents of all ranks: the one place that compares them. Pure.
#ifndef COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_
#define COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_

#include <vector>

#include "commpool/status.h"
#include "src/registration/intent.h"

namespace commpool::internal {

// Intents of one pool, rank 0's first. The claims are not judged yet.
IntentVerdict CompareIntents(const std::vector<Intent>& intents);

// kDisagreement where the ranks do not call for the same pools, in one order. What each calls for alone has its name
// compared with the rest of the intent.
Status CheckSamePools(const std::vector<CallIntents>& calls);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_INTENT_COMPARISON_H_
