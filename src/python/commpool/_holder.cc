// A memory holder with Python functions, for threads that must not wait for Python. An allocation that runs out of
// memory posts a request and waits for a bounded time. A thread of Python takes the request and does the work.
//
// An allocating thread may hold what Python needs: the GIL, or the lock of the library that is asked. So the thread
// withdraws a request that nobody takes in time, and abandons one that is not done in time. Python calls this file by
// ctypes.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>

#define COMMPOOL_FOR_PYTHON extern "C" __attribute__((visibility("default")))

namespace {

enum class Stage { kIdle, kPosted, kTaken, kBegun, kDone };
using Milliseconds = std::chrono::milliseconds;

struct RequestSlot {
  // What Python reads, through holders.RequestSlot. From kTaken on a request does not change until it is done or given
  // up.
  int release = 0;  // the request: 1 to give back, 0 to say what it holds
  int device = 0;
  uint64_t bytes = 0;     // requested
  uint64_t skipped = 0;   // requests that did not begin in time
  uint64_t overtime = 0;  // requests that began, and were not done in time

  std::mutex mutex;
  std::condition_variable changed;
  Stage stage = Stage::kIdle;
  bool wanted = false;  // whether a thread still waits for the request that is taken or has begun
  bool closed = false;  // the Python thread must end
  uint64_t answer = 0;  // for a request that is done
  Milliseconds begin_within;
  Milliseconds done_within;

  RequestSlot(uint64_t begin_ms, uint64_t done_ms) : begin_within(begin_ms), done_within(done_ms) {}

  // The caller of the functions below holds the mutex.
  void Change(Stage to) {
    stage = to;
    changed.notify_all();
  }

  bool Await(std::unique_lock<std::mutex>& lock, Stage awaited, Milliseconds within) {
    return changed.wait_for(lock, within, [&] { return stage >= awaited; });
  }

  // Waits until no other request is under way. Returns false if that took too long, or if Python still works on a
  // request that its thread gave up: nobody knows when that ends.
  bool AwaitTurn(std::unique_lock<std::mutex>& lock) {
    changed.wait_for(lock, begin_within, [&] { return stage == Stage::kIdle || !wanted || closed; });
    return stage == Stage::kIdle && !closed;
  }

  // Call it after a request is posted. Its place becomes free, unless Python still works on it.
  uint64_t Answer(std::unique_lock<std::mutex>& lock) {
    uint64_t* const missed = !Await(lock, Stage::kBegun, begin_within) ? &skipped
                             : !Await(lock, Stage::kDone, done_within) ? &overtime
                                                                       : nullptr;
    wanted = false;
    if (missed != nullptr) ++*missed;
    Change(missed == nullptr || stage == Stage::kPosted ? Stage::kIdle : stage);
    return missed == nullptr ? answer : 0;
  }

  uint64_t Ask(int to_release, int of_device, uint64_t count) {
    std::unique_lock lock(mutex);
    if (!AwaitTurn(lock)) {
      ++skipped;
      return 0;
    }
    release = to_release;
    device = of_device;
    bytes = count;
    wanted = true;
    Change(Stage::kPosted);
    return Answer(lock);
  }
};

}  // namespace

// The holder's functions. Their context is the slot.
COMMPOOL_FOR_PYTHON uint64_t commpool_slot_cached_bytes(int device, void* slot) {
  return static_cast<RequestSlot*>(slot)->Ask(0, device, 0);
}
COMMPOOL_FOR_PYTHON uint64_t commpool_slot_release(int device, uint64_t bytes, void* slot) {
  return static_cast<RequestSlot*>(slot)->Ask(1, device, bytes);
}

// ---- What the Python thread calls -----------------------------------------------------------------------------------

// Never deleted, because a thread of the library may be in it at any time. Null if the host has no memory.
COMMPOOL_FOR_PYTHON RequestSlot* commpool_slot_new(uint64_t begin_ms, uint64_t done_ms) {
  return new (std::nothrow) RequestSlot(begin_ms, done_ms);
}

// Waits for a request and takes it. Returns 0 when the slot is closed. Called without the GIL.
COMMPOOL_FOR_PYTHON int commpool_slot_take(RequestSlot* slot) {
  std::unique_lock lock(slot->mutex);
  slot->changed.wait(lock, [&] { return slot->closed || slot->stage == Stage::kPosted; });
  if (slot->closed) return 0;
  slot->Change(Stage::kTaken);
  return 1;
}

// Whether a thread still waits for the request that was taken. Asked when Python has the GIL and all other locks.
COMMPOOL_FOR_PYTHON int commpool_slot_begin(RequestSlot* slot) {
  const std::lock_guard lock(slot->mutex);
  slot->Change(slot->wanted ? Stage::kBegun : Stage::kIdle);
  return slot->wanted ? 1 : 0;
}

// Answers the request that has begun.
COMMPOOL_FOR_PYTHON void commpool_slot_finish(RequestSlot* slot, uint64_t answer) {
  const std::lock_guard lock(slot->mutex);
  slot->answer = answer;
  slot->Change(slot->wanted ? Stage::kDone : Stage::kIdle);
}

// From now on requests are skipped.
COMMPOOL_FOR_PYTHON void commpool_slot_close(RequestSlot* slot) {
  const std::lock_guard lock(slot->mutex);
  slot->closed = true;
  slot->changed.notify_all();
}
