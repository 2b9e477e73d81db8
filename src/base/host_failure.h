// What becomes of a host that has no memory or no thread to give: a Status, made without asking the host for more.
#ifndef COMMPOOL_SRC_BASE_HOST_FAILURE_H_
#define COMMPOOL_SRC_BASE_HOST_FAILURE_H_

#include <exception>

#include "commpool/status.h"

namespace commpool::internal {

// kOutOfMemory, in texts so short that a string holds them in itself. The C ABI makes a sentence of them.
inline constexpr const char* kNoHostMemory = "no host memory";
inline constexpr const char* kNoHostThread = "no host thread";

// What the host refused; else kInternal, with the exception's text where there is memory for it.
Status Described(const std::exception& exception) noexcept;

// Runs `step`, which returns a Status or a Result. An exception of the standard library becomes one; only those of the
// host are expected. Any other is a caller's own way out, through functions that it gave us, and goes on.
template <typename Step>
auto Attempt(Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::exception& exception) {
    return Described(exception);
  }
}

// Best effort: for what follows a change that is done already, and may as well be done later. A failure is dropped, for
// it must not fail the call.
template <typename Step>
void BestEffort(Step step) noexcept {
  try {
    step();
  } catch (...) {  // NOLINT: the next call does what is left
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_FAILURE_H_
