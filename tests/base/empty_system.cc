#include "tests/base/empty_system.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace commpool::internal::testing {

namespace {

thread_local constinit uint64_t most = UINT64_MAX;
thread_local constinit uint64_t requests = 0;

void* FromSystem(size_t bytes) { return requests++ >= most ? nullptr : std::malloc(bytes == 0 ? 1 : bytes); }

}  // namespace

SystemIsEmpty::SystemIsEmpty(uint64_t served) {
  most = served;
  requests = 0;
}
SystemIsEmpty::~SystemIsEmpty() { most = UINT64_MAX; }

uint64_t SystemIsEmpty::Requests() { return requests; }

}  // namespace commpool::internal::testing

using commpool::internal::testing::FromSystem;

void* operator new(size_t bytes) {
  void* const memory = FromSystem(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return FromSystem(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
