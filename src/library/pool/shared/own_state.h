// OwnState: a thread's own state, in one object, so that a call finds it with one look-up and no lock. Only the thread
// itself uses it.
#pragma once

#include <cstdint>

namespace commpool::internal {

class OwnCaches;
class OwnScopes;

// The fields of one thread, for the fast paths of caches and scopes. OwnScopes::Join and MakeOwnCaches make the two
// objects, and the end of the thread destroys them.
struct OwnState {
  OwnCaches* caches = nullptr;  // null before the first use, and while the thread ends
  OwnScopes* scopes = nullptr;  // likewise
  uint64_t scope_changes = 0;   // how often a scope of this thread has begun or ended
  // How many allocations asked for a scope and found none: see ScopeTable::NoteUncaught.
  uint32_t uncaught = 0;
  // This thread runs a user's function: its calls must take the slow path, which refuses them.
  bool in_user_function = false;
};

// It has no destructor, so it stays readable until the thread is gone. Constant initialisation: a read needs no check
// whether the thread has made it.
inline thread_local constinit OwnState own_state;

// While it lives, this thread uses no caches, and takes the slow path to begin and end scopes. For functions of the
// program that the library calls: their own calls must be refused, which only the slow path does. May be nested: each
// puts back what it found. SegmentMaker makes one where a backing may call the program's own functions.
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
