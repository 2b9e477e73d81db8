// A host without memory, for one thread.
//
// A test that links this gets its own operator new.
#ifndef COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
#define COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_

#include <cstdint>

namespace commpool::internal::testing {

// While it lives the calling thread's requests for memory fail, except for the first ones.
class [[nodiscard]] SystemIsEmpty {
 public:
  explicit SystemIsEmpty(uint64_t served = 0);
  ~SystemIsEmpty();
  SystemIsEmpty(const SystemIsEmpty&) = delete;
  SystemIsEmpty& operator=(const SystemIsEmpty&) = delete;

  // How many there were since the last one began.
  static uint64_t Requests();
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
