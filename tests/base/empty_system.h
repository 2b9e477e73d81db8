// A host without memory, as one thread finds it.
//
// A test that links this has an operator new of its own.
#ifndef COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
#define COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_

namespace commpool::internal::testing {

// The calling thread's requests for memory fail while it lives.
class [[nodiscard]] SystemIsEmpty {
 public:
  SystemIsEmpty();
  ~SystemIsEmpty();
  SystemIsEmpty(const SystemIsEmpty&) = delete;
  SystemIsEmpty& operator=(const SystemIsEmpty&) = delete;
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_BASE_EMPTY_SYSTEM_H_
