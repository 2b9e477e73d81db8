// Status and Result<T>: how every commpool call reports what went wrong.
//
//   Result<Buffer> buffer = commpool::allocate(bytes, stream);
//   if (!buffer.ok()) std::cerr << buffer.status().message() << '\n';
//
// Errors are values. Only Result's `value()` and Status's `or_throw()` throw (commpool::Error), for programs that
// prefer to stop at the first failure:
//
//   pool.reserve(GiB(1)).or_throw();
//
// Built without exceptions (-fno-exceptions, all of a program) they end the program instead, with the sentence on
// stderr.
//
// Both types are immutable values: any thread may read one that no other thread writes.
#ifndef COMMPOOL_STATUS_H_
#define COMMPOOL_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "commpool/commpool.h"

namespace commpool {
inline namespace v1 {

// What kind of failure it was: what a program branches on. The numbers are those of the C ABI.
enum class StatusCode : int {
  kOk = COMMPOOL_OK,
  kInvalidArgument = COMMPOOL_INVALID_ARGUMENT,        // the caller's values are wrong: nothing was done
  kOutOfMemory = COMMPOOL_OUT_OF_MEMORY,               // the device, the pool's limit or the system has no more
  kExhausted = COMMPOOL_EXHAUSTED,                     // a symmetric pool is full: reserve or reclaim
  kNotSupported = COMMPOOL_NOT_SUPPORTED,              // this driver, NCCL or device cannot do it
  kFailedPrecondition = COMMPOOL_FAILED_PRECONDITION,  // not in this state, or not on this thread
  kNotFound = COMMPOOL_NOT_FOUND,                      // no such pool, pointer, registration or library
  kDeadlineExceeded = COMMPOOL_DEADLINE_EXCEEDED,      // a rank or the device did not answer in time
  kDisagreement = COMMPOOL_DISAGREEMENT,               // ranks asked for different things
  kRemoteFailure = COMMPOOL_REMOTE_FAILURE,            // another rank failed: the message names it
  kDriverError = COMMPOOL_DRIVER_ERROR,                // a CUDA driver call failed
  kCommunicatorError = COMMPOOL_COMMUNICATOR_ERROR,    // an NCCL call failed, or a communicator is unusable
  kInternal = COMMPOOL_INTERNAL,                       // an exception reached the ABI: please report it
  kNotCaught = COMMPOOL_NOT_CAUGHT,                    // no failure: see allocate_in_scope
};

namespace detail {

// Returns what `body` returns; where it throws, what `otherwise` returns.
template <typename Body, typename Otherwise>
auto Catching(Body body, [[maybe_unused]] Otherwise otherwise) -> decltype(body()) {
#ifdef __cpp_exceptions
  try {
    return body();
  } catch (...) {
    return otherwise();
  }
#else
  return body();
#endif
}

}  // namespace detail

// The failure of a call: its code, and a sentence that names the call, the device, the bytes and the likely cause.
// Copies share the sentence, so a copy asks the host for no memory. Where the host has none for the sentence itself,
// the code stays and the sentence says so.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(Shared(std::move(message))) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const {
    static const std::string none;
    return message_ ? *message_ : none;
  }

  // The same failure with a caller's prefix: "prefix: message". OK stays OK.
  Status under(const std::string& prefix) const { return ok() ? *this : Status(code_, prefix + ": " + message()); }

  // Throws commpool::Error unless ok.
  void or_throw() const;

 private:
  static std::shared_ptr<const std::string> Shared(std::string message) noexcept {
    using Sentence = std::shared_ptr<const std::string>;
    return detail::Catching([&]() -> Sentence { return std::make_shared<const std::string>(std::move(message)); },
                            []() -> Sentence {
                              static const std::string refused = "no host memory";
                              return {std::shared_ptr<void>(), &refused};
                            });
  }

  StatusCode code_ = StatusCode::kOk;
  std::shared_ptr<const std::string> message_;
};

// The exception that `value()` and `or_throw()` throw.
class Error : public std::runtime_error {
 public:
  explicit Error(const Status& status) : std::runtime_error(status.message()), code_(status.code()) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

namespace detail {

[[noreturn]] inline void Throw(const Status& status) {
#ifdef __cpp_exceptions
  throw Error(status);
#else
  std::fprintf(stderr, "commpool: %s\n", status.message().c_str());
  std::abort();
#endif
}

}  // namespace detail

inline void Status::or_throw() const {
  if (!ok()) detail::Throw(*this);
}

// A value, or the Status that says why there is none. value(), error(), has_value(), value_or(), * and -> are those of
// std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T held) : held_(std::move(held)) {}                // NOLINT: a value is a result
  Result(Status failure) : failure_(std::move(failure)) {}  // NOLINT: so is a failure; it must not be ok

  bool ok() const { return held_.has_value(); }
  bool has_value() const { return ok(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const& { return failure_; }
  Status status() && { return std::move(failure_); }
  const Status& error() const { return failure_; }

  // The value; throws commpool::Error where there is none.
  T& value() & { return require(), *held_; }
  const T& value() const& { return require(), *held_; }
  T value() && { return require(), std::move(*held_); }
  template <typename Other>
  T value_or(Other&& other) const& {
    return ok() ? *held_ : static_cast<T>(std::forward<Other>(other));
  }
  template <typename Other>
  T value_or(Other&& other) && {
    return ok() ? std::move(*held_) : static_cast<T>(std::forward<Other>(other));
  }
  // Throws as value() does, for who wants no value.
  void or_throw() const { require(); }

  // REQUIRES: ok().
  T& operator*() { return *held_; }
  const T& operator*() const { return *held_; }
  T* operator->() { return &*held_; }
  const T* operator->() const { return &*held_; }

 private:
  void require() const {
    if (!ok()) detail::Throw(failure_);
  }

  // Not a variant: in each file that has a result a variant makes the compiler three times as slow.
  std::optional<T> held_;
  Status failure_;
};

namespace detail {

// The Status of a C call that this thread has just made.
inline Status FromC(commpool_status code) {
  if (code == COMMPOOL_OK) return Status();
  return Status(static_cast<StatusCode>(code), commpool_last_error());
}

}  // namespace detail
}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_STATUS_H_
