// Turns a host without memory or threads into a Status, without asking the host for more.
#ifndef COMMPOOL_SRC_BASE_HOST_FAILURE_H_
#define COMMPOOL_SRC_BASE_HOST_FAILURE_H_

#include <exception>

#include "commpool/status.h"

namespace commpool::internal {

// For kOutOfMemory. So short that a std::string holds it without allocating. The C ABI makes a sentence of it.
inline constexpr const char* kNoHostMemory = "no host memory";
inline constexpr const char* kNoHostThread = "no host thread";

// Names what the host refused; for another exception kInternal, with its text where there is memory for it.
Status Described(const std::exception& exception) noexcept;

// Runs `step`, which returns a Status or a Result. An exception of the standard library becomes a Status. Any other
// passes: a caller's function threw it, and the caller waits for it.
template <typename Step>
auto Attempt(Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::exception& exception) {
    return Described(exception);
  }
}

// Best effort, for work after a change that is done already. A failure is dropped: it must not fail the call, and the
// work may be done later.
template <typename Step>
void BestEffort(Step step) noexcept {
  try {
    step();
  } catch (...) {  // NOLINT: the next call does what is left
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_FAILURE_H_
