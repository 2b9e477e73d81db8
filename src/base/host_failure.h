// What becomes of a host that has no memory or no thread to give: a Status, made without asking the host for more.
#ifndef COMMPOOL_SRC_BASE_HOST_FAILURE_H_
#define COMMPOOL_SRC_BASE_HOST_FAILURE_H_

#include <exception>
#include <new>
#include <system_error>

#include "commpool/status.h"

namespace commpool::internal {

// kOutOfMemory, in texts so short that a string holds them in itself. The C ABI makes a sentence of them.
inline constexpr const char* kNoHostMemory = "no host memory";
inline constexpr const char* kNoHostThread = "no host thread";

// kInternal, with the exception's text where there is memory for it.
Status Described(const std::exception& exception) noexcept;

// Runs `step`, which returns a Status or a Result. An exception in it becomes one; only those of the host are expected.
template <typename Step>
auto Attempt(Step step) noexcept -> decltype(step()) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, kNoHostMemory);
  } catch (const std::system_error&) {
    return Status(StatusCode::kOutOfMemory, kNoHostThread);
  } catch (const std::exception& exception) {
    return Described(exception);
  } catch (...) {
    return Status(StatusCode::kInternal, "an exception");
  }
}

// For what follows a change that is done already, and may as well be done later: it must not fail the call.
template <typename Step>
void AttemptInVain(Step step) noexcept {
  try {
    step();
  } catch (...) {  // NOLINT: the next call does what is left
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_FAILURE_H_
