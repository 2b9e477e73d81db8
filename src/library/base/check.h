// The two ends of a process that commpool brings about. COMMPOOL_CHECK gives a reason where one of our own invariants
// is broken. EndWithoutHostMemory is for a host without memory for our books (rule 12). Bad input is a Status, and so
// is what a function of the program throws (user_function.h).
#pragma once

namespace commpool::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* reason);

// Says in one sentence what needed the memory, and aborts. It takes no memory itself.
[[noreturn]] void EndWithoutHostMemory(const char* who) noexcept;

}  // namespace commpool::internal

#define COMMPOOL_CHECK(condition, reason)                                                        \
  do {                                                                                           \
    if (!(condition)) ::commpool::internal::CheckFailed(__FILE__, __LINE__, #condition, reason); \
  } while (false)
