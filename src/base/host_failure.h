// Turns a host without memory or threads into a Status, without asking the host for more.
#ifndef COMMPOOL_SRC_BASE_HOST_FAILURE_H_
#define COMMPOOL_SRC_BASE_HOST_FAILURE_H_

#include <exception>

#include "commpool/status.h"

namespace commpool::internal {

// The message for kOutOfMemory. It is so short that a std::string holds it without an allocation. The C ABI makes a
// sentence of it.
inline constexpr const char* kNoHostMemory = "no host memory";
inline constexpr const char* kNoHostThread = "no host thread";

// The Status for an exception: names what the host refused. For any other exception kInternal, with its text if there
// is memory for it.
Status Described(const std::exception& exception) noexcept;

// Runs `step`, which returns a Status or a Result. An exception of the standard library becomes a Status. Any other
// passes through, because a function of the caller threw it, and the caller expects it.
template <typename Step>
auto Attempt(Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::exception& exception) {
    return Described(exception);
  }
}

// Runs `step` as a best effort, for work that follows a finished change. It drops a failure: the call must not fail any
// more, and a later call does the work.
template <typename Step>
void BestEffort(Step step) noexcept {
  try {
    step();
  } catch (...) {  // NOLINT: the next call does what is left
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_FAILURE_H_
