// Scopes as plain values, for the scopes and the threads' slots; and OwnScopes: a thread's own scopes. The thread
// pushes, pops and reads this stack without waiting for anybody.
//
// Other threads only ask whether any scope is open, and whether a scope is open here or has ended. They hold the
// board's lock, and then take the owner's lock (base/owner_lock.h).
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/base/owner_lock.h"
#include "src/library/pool/scopes/plan.h"
#include "src/library/pool/shared/own_state.h"
#include "src/library/pool/shared/tables.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// Never 0, and never used twice by one table.
using ScopeHandle = uint64_t;

// Whose allocations a scope may catch: this thread's, those on one stream, or everybody's. A scope of a thread lies in
// that thread's stack, the others in the list that all threads read.
enum class ScopeFilter {
  kThread = COMMPOOL_FILTER_THREAD,
  kStream = COMMPOOL_FILTER_STREAM,
  kProcess = COMMPOOL_FILTER_PROCESS
};

// What scopes need to know of an allocation. `stream` is the stream's identity, which a promise does not change
// (StreamName). Runtime makes one for each request that this thread does not know yet.
struct RoutedRequest {
  int device = 0;
  StreamKey stream = 0;
  uint64_t bytes = 0;
};

// When a scope began, as one thread sees it. `shared`: how many shared scopes had begun by then; `own`: then, how many
// of the thread's own were open. Scopes of other threads have no place, because they never catch this thread's
// allocations. Compared by `shared` first: an own scope that began after shared scope 3 is {3, 1}, and so inside of it,
// {3, 0}.
struct ScopePlace {
  uint64_t shared = 0;
  uint64_t own = 0;

  friend auto operator<=>(const ScopePlace&, const ScopePlace&) = default;
};

// Before the first scope, and after the last: the ends of a search.
inline constexpr ScopePlace kOutermost = {};
inline constexpr ScopePlace kInnermost = {UINT64_MAX, UINT64_MAX};

// The pool that serves an allocation, and the scope that caught it, if any. `pool` may be 0: nobody serves. Allocate
// needs the scope itself only after a failure, to hand the request on.
struct CaughtBy {
  ScopeHandle scope = 0;  // 0: none
  ScopePlace place;
  PoolHandle pool = 0;
  Exhaustion exhaustion = Exhaustion::kError;
};

// One open scope of a stream or of the process.
struct SharedScope {
  ScopeHandle handle = 0;
  uint64_t number = 0;   // start order among stream-wide and process-wide scopes, from 1
  StreamKey stream = 0;  // 0: every stream
  ScopePlan plan;

  ScopePlace place() const { return {number, 0}; }
  bool Catches(const RoutedRequest& request) const {
    return (stream == 0 || stream == request.stream) && plan.Catches(request.device, request.bytes);
  }
  CaughtBy caught() const { return {handle, place(), plan.pool, plan.exhaustion}; }
};

// Shared by all threads with scopes in one table. It outlives the table where a thread ends later. ScopeTable owns it,
// and each stack that joined keeps it alive.
struct ScopeBoard {
  // Guards the list of stacks. ScopeTable also holds it while it changes the shared scopes.
  Mutex mutex{LockRank::kPoolTable};
  // One for each thread that has ever begun a scope here and still lives.
  std::vector<OwnScopes*> stacks COMMPOOL_GUARDED_BY(mutex);
  // Threads take many at a time (PushSlowly), so handles do not tell which scope began first.
  std::atomic<ScopeHandle> next_handle{1};
  // An own scope notes the count as it begins: so a thread knows which of its own and the shared scopes began first.
  std::atomic<uint64_t> shared_begun{0};  // scopes of streams and of the process that have ever begun
  // Not 0 while a scope may be open. Each begin raises it; ScopeTable::NoteUncaught lowers it now and then.
  std::atomic<uint64_t> own_flag{0};
  // The flag in use: the C ABI has one of its own (ScopeTable::ShowIn).
  std::atomic<uint64_t>* flag = &own_flag;

  // Stores only where that changes the value, because every thread reads this cache line.
  void Raise() {
    if (flag->load(std::memory_order_relaxed) == 0) flag->store(1, std::memory_order_relaxed);
  }
};

// One scope in a thread's stack. Its size is 64 bytes, so that a shift finds a place in the stack.
struct alignas(16) OwnScope {
  // A thread has one stack for the scopes of all tables, so each scope names its table's board.
  const ScopeBoard* board = nullptr;
  ScopeHandle handle = 0;
  uint64_t shared_before = 0;  // how many shared scopes had begun before
  ScopePlan plan;

  // Null once another thread has ended the scope. The owner reads it without a lock, and takes it off the stack later.
  const ScopeBoard* Board() const { return __atomic_load_n(&board, __ATOMIC_RELAXED); }
  void MarkEnded() { __atomic_store_n(&board, nullptr, __ATOMIC_RELAXED); }

  bool Is(const ScopeBoard* asked, ScopeHandle scope) const { return handle == scope && Board() == asked; }
  // False for a scope that has ended, because its board is null.
  bool Catches(const ScopeBoard* asked, int device, uint64_t bytes) const {
    return Board() == asked && plan.Catches(device, bytes);
  }
};

// `own_state` points to this thread's object; ScopeTable uses it. The board lists it, so that others find it.
class OwnScopes {
 public:
  OwnScopes();
  ~OwnScopes();

  // This thread's scopes of the board; null while the thread ends. Makes the stack at the thread's first scope. Takes
  // the board's lock at the thread's first scope of this board.
  static OwnScopes* Join(const std::shared_ptr<ScopeBoard>& board);
  // Whether the scope was open on this thread when the thread began to end. Forgets it. So a destructor that runs at
  // the thread's end may end its scope without an error. Only the thread itself calls it, because the scopes are noted
  // in thread-local memory.
  static bool TakeEnded(const ScopeBoard* board, ScopeHandle scope);

  // Pushes the scope under a new handle. 0 where that needs more than stores: then call PushSlowly.
  [[gnu::always_inline]] ScopeHandle PushAtOnce(ScopeBoard& board, const ScopePlan& plan) {
    const bool prepared = board_ == &board && next_handle_ != end_of_handles_ && depth_ < slots_.size();
    if (!prepared || !lock_.TryLockAsOwner()) return 0;
    const ScopeHandle handle = Push(board, plan);
    lock_.UnlockAsOwner();
    return handle;
  }
  // REQUIRES: the caller does not hold the board's lock. Waits for a thread that looks at the stack, may make the stack
  // longer, and takes new handles where none are left. May throw std::bad_alloc, before the scope has begun.
  ScopeHandle PushSlowly(ScopeBoard& board, const ScopePlan& plan);

  // Pops the scope if it is the top of the stack and no other thread looks. Otherwise the caller ends the scope slowly,
  // with the board's lock.
  bool PopAtOnce(const ScopeBoard* board, ScopeHandle scope) {
    if (depth_ == 0 || !slots_[depth_ - 1].Is(board, scope)) return false;
    if (!lock_.TryLockAsOwner()) return false;
    SetDepth(depth_ - 1);
    lock_.UnlockAsOwner();
    return true;
  }
  // Takes scopes that other threads have ended off the stack.
  void EraseEnded() { Erase(nullptr, 0); }
  // EraseEnded, and takes `scope` off the stack too. The scope may lie anywhere in the stack; those above it move down.
  // Only the owner calls it. It waits for a thread that looks.
  void Erase(const ScopeBoard* board, ScopeHandle scope);

  // Narrows `alike` to sizes around `bytes` that every scope of the stack treats alike. All of them, whatever table
  // they are of: a range that is too small costs another question, a range that is too large would route wrongly.
  void Narrow(SizeRange& alike, uint64_t bytes) const {
    for (const OwnScope* scope = begin(); scope != end(); ++scope) alike.Narrow(scope->plan.sizes, bytes);
  }
  // The innermost scope that began before `inner` and catches the request; nothing where none does. Only the owner
  // calls it, without a lock.
  std::optional<CaughtBy> CatchingBefore(const ScopeBoard* board, const RoutedRequest& request,
                                         const ScopePlace& inner) const;
  // The innermost of the board; null where there is none. Only the owner calls it, as Has.
  const OwnScope* Innermost(const ScopeBoard* board) const;

  // For other threads, which hold the board's lock. A first look without the owner's lock: the answer may be out of
  // date, in both directions.
  bool MayBeOpen() const { return open_.load(std::memory_order_relaxed) != 0; }
  // For every thread but the owner: while a Pause lives, the owner changes nothing. REQUIRES: the board's lock, so that
  // the stack's thread cannot end meanwhile. Keep it short: the owner spins in a begin or end of a scope.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(OwnScopes& scopes) : scopes_(&scopes) { static_cast<void>(scopes.lock_.Lock()); }
    Pause(Pause&& other) noexcept : scopes_(std::exchange(other.scopes_, nullptr)) {}
    ~Pause() {
      if (scopes_ != nullptr) scopes_->lock_.Unlock();
    }

    bool empty() const { return scopes_->depth_ == 0; }
    // False where the scope is not in the stack. The owner still finds the entry there, and passes it by, because its
    // board is null.
    bool MarkEnded(const ScopeBoard* board, ScopeHandle scope);

   private:
    OwnScopes* scopes_;
  };

  bool Has(const ScopeBoard* board, ScopeHandle scope) const;

 private:
  // The stack has so many places from the start, and doubles where they are not enough.
  static constexpr size_t kUsualDepth = 8;
  // So many scopes begin before the thread needs the board's counter again.
  static constexpr uint64_t kHandlesAtOnce = 1024;

  const OwnScope* begin() const { return slots_.data(); }
  const OwnScope* end() const { return slots_.data() + depth_; }
  // REQUIRES: the owner's lock. The count of changes makes this thread's remembered routes invalid (Route::scopes).
  void SetDepth(size_t depth) {
    depth_ = depth;
    open_.store(depth, std::memory_order_relaxed);
    ++own_state.scope_changes;
  }
  // REQUIRES: the owner's lock, a place in the stack, and a handle.
  ScopeHandle Push(ScopeBoard& board, const ScopePlan& plan) {
    const ScopeHandle handle = next_handle_++;
    // Acquire: a shared scope that counts here is also seen in the published list.
    const uint64_t shared = board.shared_begun.load(std::memory_order_acquire);
    // Written field by field. A whole value would be built elsewhere, and copied before its stores have finished.
    OwnScope& slot = slots_[depth_];
    slot.board = &board;
    slot.handle = handle;
    slot.shared_before = shared;
    slot.plan.pool = plan.pool;
    slot.plan.sizes.least = plan.sizes.least;
    slot.plan.sizes.most = plan.sizes.most;
    slot.plan.device = plan.device;
    slot.plan.exhaustion = plan.exhaustion;
    SetDepth(depth_ + 1);
    board.Raise();
    return handle;
  }

  // The owner takes it for each change; others take it to look (Pause). The owner reads without it.
  OwnerLock lock_;
  std::atomic<size_t> open_{0};  // the depth, for threads that hold no lock
  // Only the owner changes it. Others read it under the lock.
  size_t depth_ = 0;
  std::vector<OwnScope> slots_;  // the first `depth_` are open, the innermost last
  // Handles that nobody else hands out, and the board that they belong to.
  const ScopeBoard* board_ = nullptr;
  ScopeHandle next_handle_ = 0;
  ScopeHandle end_of_handles_ = 0;
  // The boards that list this stack. Kept alive, because the destructor takes their locks.
  std::vector<std::shared_ptr<ScopeBoard>> joined_;
};

}  // namespace commpool::internal
