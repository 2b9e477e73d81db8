// The end of a process whose host has no memory for our books (rule 12). What a function of the program throws is no
// such end (user_function.h).
#ifndef COMMPOOL_SRC_LIBRARY_BASE_HOST_MEMORY_H_
#define COMMPOOL_SRC_LIBRARY_BASE_HOST_MEMORY_H_

namespace commpool::internal {

// Says in one sentence what needed the memory, and aborts. It takes no memory itself.
[[noreturn]] void EndWithoutHostMemory(const char* who) noexcept;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_BASE_HOST_MEMORY_H_
