// An object of each thread that may be asked for at any point of the thread's life: destructors of a program's own
// thread-local and static objects run after the library's, and call it.
#ifndef COMMPOOL_SRC_BASE_OF_THIS_THREAD_H_
#define COMMPOOL_SRC_BASE_OF_THIS_THREAD_H_

namespace commpool::internal {

// The calling thread's object, made at its first use; null once the thread has destroyed it. `Tag` tells objects of one
// type apart.
template <typename Value, typename Tag>
Value* OfThisThread() {
  static thread_local constinit bool gone = false;  // has no destructor, so it can be read until the thread is gone
  struct Owner {
    Value value;
    ~Owner() { gone = true; }
  };
  if (gone) return nullptr;
  static thread_local Owner owner;
  return &owner.value;
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_OF_THIS_THREAD_H_
