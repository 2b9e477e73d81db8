// A host without memory, for one thread.
//
// A test that links this gets its own operator new.
#ifndef COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
#define COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_

namespace commpool::internal::testing {

// While it lives the calling thread's requests for memory fail.
class [[nodiscard]] SystemIsEmpty {
 public:
  SystemIsEmpty();
  ~SystemIsEmpty();
  SystemIsEmpty(const SystemIsEmpty&) = delete;
  SystemIsEmpty& operator=(const SystemIsEmpty&) = delete;
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
