// Calls functions of the program. Their exceptions stop here. Calls that they make into the library are refused,
// because they could wait for locks that their own caller holds.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "commpool/status.h"

namespace commpool::internal {

struct UserFunctionKind {
  const char* name;       // for messages: "a pool's all_gather"
  bool may_free = false;  // whether the function may free blocks: its caller holds no lock that a free takes
};

// While it lives, this thread runs a function of the program of that kind. Such functions may nest.
class [[nodiscard]] UserFunction {
 public:
  // `kind` lives as long as the process.
  explicit UserFunction(const UserFunctionKind& kind) : outer_(std::exchange(running_, &kind)) {}
  ~UserFunction() { running_ = outer_; }
  UserFunction(const UserFunction&) = delete;
  UserFunction& operator=(const UserFunction&) = delete;

  // The innermost function of the program on this thread; null for none.
  static const UserFunctionKind* Running() { return running_; }

 private:
  static inline thread_local constinit const UserFunctionKind* running_ = nullptr;

  const UserFunctionKind* const outer_;
};

// Runs a function of the program. `what` begins the message of a failure.
template <typename Function>
Status CallUserFunction(const UserFunctionKind& kind, const std::string& what, Function function) {
  const UserFunction running(kind);
  try {
    function();
    return Status();
  } catch (const std::bad_alloc& exception) {
    return Status(StatusCode::kOutOfMemory, what + " threw std::bad_alloc: " + exception.what());
  } catch (const std::exception& exception) {
    return Status(StatusCode::kInvalidArgument, what + " threw an exception, which it may not: " + exception.what());
  } catch (...) {
    return Status(StatusCode::kInvalidArgument, what + " threw something, which it may not");
  }
}

}  // namespace commpool::internal
