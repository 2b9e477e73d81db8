// COMMPOOL_CHECK ends the process with a reason where one of our own invariants is broken. Bad input is a Status.
#ifndef COMMPOOL_SRC_LIBRARY_BASE_CHECK_H_
#define COMMPOOL_SRC_LIBRARY_BASE_CHECK_H_

namespace commpool::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* reason);

}  // namespace commpool::internal

#define COMMPOOL_CHECK(condition, reason)                                                        \
  do {                                                                                           \
    if (!(condition)) ::commpool::internal::CheckFailed(__FILE__, __LINE__, #condition, reason); \
  } while (false)

#endif  // COMMPOOL_SRC_LIBRARY_BASE_CHECK_H_
