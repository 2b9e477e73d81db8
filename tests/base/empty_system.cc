#include "tests/base/empty_system.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace commpool::internal::testing {

namespace {

thread_local constinit bool system_is_empty = false;

void* FromSystem(size_t bytes) { return system_is_empty ? nullptr : std::malloc(bytes == 0 ? 1 : bytes); }

}  // namespace

SystemIsEmpty::SystemIsEmpty() { system_is_empty = true; }
SystemIsEmpty::~SystemIsEmpty() { system_is_empty = false; }

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
