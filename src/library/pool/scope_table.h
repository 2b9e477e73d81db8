// ScopeTable: the open scopes, which route allocations. The runtime owns it. Any thread.
//
// Each thread has a stack of its own scopes (scopes/own_scopes.h), which its allocations read without a lock. Scopes of
// streams and of the process are few; whoever reads or changes them takes the lock `pool table`. Threads remember the
// answers, so a request is routed here but seldom. Of all scopes that catch an allocation the one begun last wins. A
// scope knows its pool by handle, so it keeps no pool alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/fork_guard.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/scopes/own_scopes.h"

namespace commpool::internal {

// A scope to begin. The C ABI makes it, and it keeps the pool alive during the call.
struct ScopeRequest {
  std::shared_ptr<Pool> pool;
  ScopeFilter filter = ScopeFilter::kThread;
  // The pool's handle goes into the plan, not the pointer: the scope keeps no pool alive.
  StreamKey stream = 0;  // for a kStream filter
  SizeRange sizes = {};
  Exhaustion exhaustion = Exhaustion::kError;
};

// Lock: `pool table`, the board's, to begin and end shared scopes and to look at other threads' scopes. It owns the
// board and the list of shared scopes; each thread owns its stack. Begin and End come from the C ABI, Route from every
// allocation whose server the thread does not remember.
class ScopeTable {
 public:
  // `flag` is not 0 where a scope is open; it may stay so for a while afterwards. REQUIRES: no scope has begun. The C
  // ABI passes its own, which its callers read without a look at the runtime.
  void ShowIn(std::atomic<uint64_t>& flag) { board_->flag = &flag; }

  // kInvalidArgument for a process-wide scope on a symmetric pool (its allocations would come in any order: rule 4),
  // and for sizes whose minimum is above their maximum.
  Result<ScopeHandle> Begin(const ScopeRequest& request);
  // Begins a scope of this thread. 0 where that needs a lock: then call Begin. REQUIRES: the sizes are a valid range.
  ScopeHandle BeginAtOnce(const ScopePlan& plan) {
    if (own_state.scopes == nullptr || own_state.in_user_function) return 0;
    return own_state.scopes->PushAtOnce(*board_, plan);
  }

  // kNotFound for a scope that has ended. kFailedPrecondition, and a line in the log, for a scope of another thread and
  // for one that is not the innermost: both end all the same.
  Status End(ScopeHandle scope);
  // Ends the scope if it is this thread's innermost; returns whether it did.
  bool EndAtOnce(ScopeHandle scope) {
    return own_state.scopes != nullptr && !own_state.in_user_function &&
           own_state.scopes->PopAtOnce(board_.get(), scope);
  }

  // While this stays the same, and own_state.scope_changes stays the same too, this thread's allocations are routed as
  // before.
  uint64_t shared_changes() const { return shared_changes_.load(std::memory_order_acquire); }
  // Narrows `alike` to sizes around `bytes` with the same route. Valid where nothing changed meanwhile.
  void Narrow(SizeRange& alike, uint64_t bytes) const;

  // The newest scope that began before `inner` and catches the allocation; nothing where there is none. Takes the lock
  // where a shared scope is open.
  std::optional<CaughtBy> Route(const RoutedRequest& request, const ScopePlace& inner = kInnermost) const;

  // Called when an allocation asked for a scope and none caught it. Once in many calls it lowers the flag, if no scope
  // is open.
  void NoteUncaught() {
    if (++own_state.uncaught % kUncaughtForALook == 0) LowerFlag();
  }
  // A look takes the board's lock, so it is rare.
  static constexpr uint32_t kUncaughtForALook = 256;

 private:
  // Makes threads ask again who serves. Call it after each change of the list, under the same hold of the lock.
  void NoteSharedChange() COMMPOOL_REQUIRES(board_->mutex) {
    shared_count_.store(shared_list_.size(), std::memory_order_release);
    shared_changes_.fetch_add(1, std::memory_order_release);
  }
  // Whether a shared scope may catch a request. In a forked child none does, for another thread may have held the lock.
  bool MayBeShared() const { return shared_count_.load(std::memory_order_acquire) != 0 && !InForkedChild(); }
  // Ends any scope, with the board's lock, and says where it ended out of order.
  Status EndSlowly(ScopeHandle scope);
  // Lowers the flag if no scope is open in any thread.
  void LowerFlag();

  // Shared with the stacks, which may outlive the table.
  const std::shared_ptr<ScopeBoard> board_ = std::make_shared<ScopeBoard>();
  // All shared scopes, the one begun last at the end.
  std::vector<SharedScope> shared_list_ COMMPOOL_GUARDED_BY(board_->mutex);
  std::atomic<size_t> shared_count_{0};  // its size, for threads without the lock
  std::atomic<uint64_t> shared_changes_{0};
};

}  // namespace commpool::internal
