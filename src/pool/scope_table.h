// Open scopes: where an allocation is routed. Any thread.
//
// A thread's own scopes are its own stack (scopes/own_scopes.h); those of a stream or of the process are few and
// published (scopes/shared_scopes.h): allocations read both without a lock. Of all that catch an allocation the one
// begun last wins. A scope knows its pool by the handle, so that none keeps a pool alive.
#ifndef COMMPOOL_SRC_POOL_SCOPE_TABLE_H_
#define COMMPOOL_SRC_POOL_SCOPE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/pool/pool.h"
#include "src/pool/scopes/own_scopes.h"
#include "src/pool/scopes/scope.h"
#include "src/pool/scopes/shared_scopes.h"

namespace commpool::internal {

struct ScopeRequest {
  std::shared_ptr<Pool> pool;
  ScopeFilter filter = ScopeFilter::kThread;
  StreamKey stream = 0;  // of a kStream filter
  SizeRange sizes = {};
  Exhaustion exhaustion = Exhaustion::kError;
};

class ScopeTable {
 public:
  // `flag` is not 0 where a scope is open; it may stay so for a while afterwards. REQUIRES: no scope has begun.
  void ShowIn(std::atomic<uint64_t>& flag) { board_->flag = &flag; }

  // kInvalidArgument for a process-wide scope on a symmetric pool, whose allocations would come in any order (rule 4),
  // and for sizes whose least is above their most.
  Result<ScopeHandle> Begin(const ScopeRequest& request);
  // A scope of this thread. 0 where it cannot begin without a lock: then Begin does it. REQUIRES: the sizes are a
  // range.
  ScopeHandle BeginAtOnce(const ScopePlan& plan) {
    if (own_state.scopes == nullptr || own_state.in_user_function) return 0;
    return own_state.scopes->PushAtOnce(*board_, plan);
  }

  // kNotFound for one that has ended; kFailedPrecondition, and a line in the log, for a thread's scope that ends on
  // another thread, or is not the innermost: it has ended all the same.
  Status End(ScopeHandle scope);
  // Whether it was this thread's innermost, and has ended now.
  bool EndAtOnce(ScopeHandle scope) {
    return own_state.scopes != nullptr && !own_state.in_user_function &&
           own_state.scopes->PopAtOnce(board_.get(), scope);
  }

  // While this stays the same, and even, and own_state.scope_changes does too, this thread's allocations are routed as
  // before.
  uint64_t shared_changes() const { return shared_.changes(); }
  // Leaves in `alike` the sizes around `bytes` that are routed like it. Right where nothing changed meanwhile.
  void Narrow(SizeRange& alike, uint64_t bytes) const;

  // Among the scopes that began before `inner` and catch the allocation, the newest; nothing where none does.
  std::optional<CaughtBy> Route(const RoutedRequest& request, const ScopePlace& inner = kInnermost) const;

  // An allocation asked for a scope, and none caught it. Once in many the flag is lowered where no scope is open.
  void NoteUncaught() {
    if (++own_state.uncaught % kUncaughtForALook == 0) LowerFlag();
  }
  static constexpr uint32_t kUncaughtForALook = 256;

 private:
  ScopeHandle BeginShared(const ScopeRequest& request);
  Status EndSlowly(ScopeHandle scope);
  bool EndShared(ScopeHandle scope) COMMPOOL_REQUIRES(board_->mutex);
  void LowerFlag();

  const std::shared_ptr<ScopeBoard> board_ = std::make_shared<ScopeBoard>();
  ReservedVector<SharedScope> shared_list_ COMMPOOL_GUARDED_BY(board_->mutex);  // all of them, the last begun last
  SharedScopes shared_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SCOPE_TABLE_H_
