// Whether this thread runs a function of the program's that the library calls: a user backing's. What such a function
// asks of the library is refused, for it could wait for locks that its own caller holds.
#ifndef COMMPOOL_SRC_BASE_USER_FUNCTION_H_
#define COMMPOOL_SRC_BASE_USER_FUNCTION_H_

#include <utility>

namespace commpool::internal {

// While it lives, this thread runs the function. They may nest.
class [[nodiscard]] UserFunction {
 public:
  // `name` is for messages and lives as long as the process: "a user backing's allocate function".
  explicit UserFunction(const char* name) : outer_(std::exchange(running_, name)) {}
  ~UserFunction() { running_ = outer_; }
  UserFunction(const UserFunction&) = delete;
  UserFunction& operator=(const UserFunction&) = delete;

  // The name of the innermost that this thread runs; null for none.
  static const char* Running() { return running_; }

 private:
  static inline thread_local constinit const char* running_ = nullptr;

  const char* const outer_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_USER_FUNCTION_H_
