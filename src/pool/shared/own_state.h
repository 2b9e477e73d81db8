// A thread's own state, found without a lock: one object, so that a call looks up its place once. For its own thread
// only.
#ifndef COMMPOOL_SRC_POOL_SHARED_OWN_STATE_H_
#define COMMPOOL_SRC_POOL_SHARED_OWN_STATE_H_

#include <cstdint>

namespace commpool::internal {

class OwnCaches;
class OwnScopes;

struct OwnState {
  OwnCaches* caches = nullptr;  // null before the first, and while the thread ends
  OwnScopes* scopes = nullptr;  // likewise
  uint64_t scope_changes = 0;   // scopes of this thread that have begun, and that have ended, all-time
  // Allocations that asked whether a scope catches them, and none did: see ScopeTable::NoteUncaught.
  uint32_t uncaught = 0;
  // The thread runs a user's function: no call of it takes a fast path, so that the slow one can refuse it.
  bool in_user_function = false;
};

// Has no destructor, so it can be read until the thread is gone.
extern thread_local constinit OwnState own_state;

// While it lives, this thread has no caches, and begins and ends no scope without a question.
class [[nodiscard]] WithoutFastPaths {
 public:
  WithoutFastPaths() : caches_(own_state.caches), outer_(own_state.in_user_function) {
    own_state.caches = nullptr;
    own_state.in_user_function = true;
  }
  ~WithoutFastPaths() {
    own_state.caches = caches_;
    own_state.in_user_function = outer_;
  }
  WithoutFastPaths(const WithoutFastPaths&) = delete;
  WithoutFastPaths& operator=(const WithoutFastPaths&) = delete;

 private:
  OwnCaches* const caches_;
  const bool outer_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OWN_STATE_H_
