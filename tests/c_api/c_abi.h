// Calls of the C ABI that are only a step of a case: with the defaults where nothing else is said, and expected to
// succeed. A failure names the line of the test, and what the library said.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "commpool/commpool.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {

// As a default argument: the line of the call.
struct Caller {
  const char* file = __builtin_FILE();
  int line = __builtin_LINE();
};

inline void ExpectOk(commpool_status status, Caller caller = {}) {
  EXPECT_EQ(status, COMMPOOL_OK) << caller.file << ":" << caller.line << ": " << commpool_last_error();
}

// Expects this code, and a last error that holds the fragment.
inline void ExpectFailure(commpool_status status, commpool_status expected, const std::string& fragment,
                          Caller caller = {}) {
  EXPECT_EQ(status, expected) << caller.file << ":" << caller.line << ": " << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(fragment), std::string::npos)
      << caller.file << ":" << caller.line << ": no '" << fragment << "' in: " << commpool_last_error();
}

inline void ExpectInvalid(commpool_status status, const std::string& fragment, Caller caller = {}) {
  ExpectFailure(status, COMMPOOL_INVALID_ARGUMENT, fragment, caller);
}

inline void ExpectNotFound(commpool_status status, const std::string& fragment, Caller caller = {}) {
  ExpectFailure(status, COMMPOOL_NOT_FOUND, fragment, caller);
}

namespace testing {

// An options struct, or another, as its function of the C ABI leaves it: Initialised(commpool_scope_options_init).
template <typename Struct>
Struct Initialised(void (*initialise)(Struct*)) {
  Struct made;
  initialise(&made);
  return made;
}

// Any number, as a program in C may pass it; a C++ cast may not.
template <typename Enum>
Enum As(int number) {
  Enum value;
  static_assert(sizeof(value) == sizeof(number));
  std::memcpy(&value, &number, sizeof(value));
  return value;
}

inline commpool_pool MakePool(const commpool_pool_options& options = Initialised(commpool_pool_options_init),
                              Caller caller = {}) {
  commpool_pool pool = 0;
  ExpectOk(commpool_pool_create(&options, &pool), caller);
  return pool;
}

inline commpool_pool_options Named(const char* name) {
  auto options = Initialised(commpool_pool_options_init);
  options.name = name;
  return options;
}

inline commpool_pool DefaultPool(Caller caller = {}) {
  commpool_pool pool = 0;
  ExpectOk(commpool_default_pool(0, &pool), caller);
  return pool;
}

inline void Destroy(commpool_pool pool, Caller caller = {}) { ExpectOk(commpool_pool_destroy(pool), caller); }

// A pool that is destroyed with its object.
struct OwnedPool {
  explicit OwnedPool(const commpool_pool_options& options = Initialised(commpool_pool_options_init), Caller caller = {})
      : owner(caller), handle(MakePool(options, caller)) {}
  ~OwnedPool() { Destroy(handle, owner); }
  OwnedPool(const OwnedPool&) = delete;
  OwnedPool& operator=(const OwnedPool&) = delete;
  operator commpool_pool() const { return handle; }

  const Caller owner;
  const commpool_pool handle;
};

inline void* Allocate(commpool_pool pool, uint64_t bytes, CUstream_st* stream = nullptr, Caller caller = {}) {
  void* block = nullptr;
  ExpectOk(commpool_pool_allocate(pool, bytes, stream, &block), caller);
  return block;
}

inline void Free(void* block, Caller caller = {}) { ExpectOk(commpool_free(block), caller); }

// A scope that ends with its object.
struct OpenScope {
  explicit OpenScope(commpool_pool pool, const commpool_scope_options* options = nullptr, Caller caller = {})
      : owner(caller) {
    ExpectOk(commpool_scope_begin(pool, options, &handle), owner);
  }
  ~OpenScope() { ExpectOk(commpool_scope_end(handle), owner); }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;

  const Caller owner;
  commpool_scope handle = 0;
};

// What the open scopes catch, or the default pool's.
inline void* AllocateCaught(uint64_t bytes, Caller caller = {}) {
  void* block = nullptr;
  ExpectOk(commpool_allocate(0, bytes, nullptr, &block), caller);
  return block;
}

inline commpool_statistics StatisticsOf(commpool_pool pool, Caller caller = {}) {
  auto statistics = Initialised(commpool_statistics_init);
  ExpectOk(commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics), caller);
  return statistics;
}

inline uint64_t BlocksOf(commpool_pool pool, Caller caller = {}) {
  return StatisticsOf(pool, caller).allocated_blocks.current;
}

}  // namespace testing
}  // namespace commpool::internal
