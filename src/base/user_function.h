// Whether this thread runs a function of the program's that the library calls: a user backing's. What such a function
// asks of the library is refused, for it could wait for locks that its own caller holds.
#ifndef COMMPOOL_SRC_BASE_USER_FUNCTION_H_
#define COMMPOOL_SRC_BASE_USER_FUNCTION_H_

namespace commpool::internal {

// While it lives, this thread runs the function. They may nest.
class [[nodiscard]] UserFunction {
 public:
  // `name` is for messages and lives as long as the process: "a user backing's allocate function".
  explicit UserFunction(const char* name);
  ~UserFunction();
  UserFunction(const UserFunction&) = delete;
  UserFunction& operator=(const UserFunction&) = delete;

  // The name of the innermost that this thread runs; null for none.
  static const char* Running();

 private:
  const char* const outer_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_USER_FUNCTION_H_
