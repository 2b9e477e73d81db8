// One object for each thread. A thread may ask for it until its very end: thread-local and static objects of the
// program may be destroyed after the library's, and their destructors still call the library.
#pragma once

namespace commpool::internal {

// The calling thread's object, made at its first use; null once the thread has destroyed it. `Tag` separates objects of
// one type.
template <typename Value, typename Tag>
Value* OfThisThread() {
  static thread_local constinit bool gone = false;  // no destructor: readable until the thread is gone
  struct Owner {
    Value value;
    ~Owner() { gone = true; }
  };
  if (gone) return nullptr;
  static thread_local Owner owner;
  return &owner.value;
}

}  // namespace commpool::internal
