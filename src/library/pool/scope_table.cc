// ScopeTable: what needs the board's lock. Most scopes of a thread begin and end in the inline functions of the header.
#include "src/library/pool/scope_table.h"

#include <algorithm>
#include <string>

#include "src/library/base/log.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// The scope has ended all the same. The program hears of it, because its allocations may lie in a wrong pool.
Status EndedWrongly(ScopeHandle scope, const std::string& how) {
  return FailedPrecondition("scope ", scope, " ended ", how,
                            ": it routes nothing any more, but what was allocated meanwhile "
                            "may lie in a pool that was not meant");
}

// Before anything changes. A thread's or a stream's scope may name a symmetric pool: the program orders its calls.
Status CheckRequest(const ScopeRequest& request) {
  if (request.sizes.least > request.sizes.most) {
    return InvalidArgument("a scope's least size, ", request.sizes.least, " bytes, is above its most, ",
                           request.sizes.most);
  }
  if (request.filter != ScopeFilter::kProcess || !request.pool->symmetric()) return Status();
  return InvalidArgument(
      "pool ", request.pool->name(),
      " is symmetric and refuses a process-wide scope: threads would allocate in a different order on "
      "each rank; use a thread's or a stream's scope");
}

}  // namespace

// The program's thread; for a thread's scope it is the thread whose allocations are caught.
Result<ScopeHandle> ScopeTable::Begin(const ScopeRequest& request) {
  COMMPOOL_TRY(CheckRequest(request));
  const ScopePlan plan{request.pool->handle(), request.sizes, request.pool->device(), request.exhaustion};
  if (request.filter == ScopeFilter::kThread) {
    // A thread's first scope comes here, and later ones where BeginAtOnce cannot begin them.
    if (OwnScopes* const own = OwnScopes::Join(board_)) return own->PushSlowly(*board_, plan);
    return FailedPrecondition("this thread is ending, and its scopes have ended: no scope of it can begin any more");
  }
  static_cast<void>(InForkedChild());  // so that it knows this process as the parent
  MutexLock lock(board_->mutex);
  const uint64_t number = board_->shared_begun.load(std::memory_order_relaxed) + 1;
  const ScopeHandle handle = board_->next_handle.fetch_add(1, std::memory_order_relaxed);
  const StreamKey stream = request.filter == ScopeFilter::kStream ? request.stream : 0;
  // At the end, because the list is ordered by number.
  shared_list_.push_back({handle, number, stream, plan});
  NoteSharedChange();
  // Readers may see the scope in the list before it counts as begun, and not the other way round: a thread that counts
  // this scope as begun also finds it.
  board_->shared_begun.store(number, std::memory_order_release);
  board_->Raise();
  return handle;
}

// Any thread may end any scope. Only this thread's innermost one ends without the board's lock.
Status ScopeTable::End(ScopeHandle scope) {
  if (EndAtOnce(scope)) return Status();
  Status status = EndSlowly(scope);
  // A destructor cannot return the error.
  if (status.code() == StatusCode::kFailedPrecondition) Log(LogLevel::kWarning, status.message());
  return status;
}

// Looks in this order: this thread's stack, the shared scopes, scopes that ended with this thread, the stacks of other
// threads. Another thread's stack may not be changed here: the scope is marked, and its owner takes it off later.
Status ScopeTable::EndSlowly(ScopeHandle scope) {
  OwnScopes* const own = own_state.scopes;
  MutexLock lock(board_->mutex);
  if (own != nullptr && own->Has(board_.get(), scope)) {
    // Of this table: the stack may hold scopes of others, which do not matter here.
    const ScopeHandle innermost = own->Innermost(board_.get())->handle;
    own->Erase(board_.get(), scope);
    if (innermost == scope) return Status();
    return EndedWrongly(scope, "before scope " + std::to_string(innermost) + ", which began after it on this thread");
  }
  // Any thread may end a shared scope, in any order.
  if (std::erase_if(shared_list_, [&](const SharedScope& shared) { return shared.handle == scope; }) != 0) {
    NoteSharedChange();
    return Status();
  }
  if (OwnScopes::TakeEnded(board_.get(), scope)) return Status();
  // The last resort, because it makes every thread with open scopes pause for a moment.
  for (OwnScopes* const other : board_->stacks) {
    if (other == own || !other->MayBeOpen() || !OwnScopes::Pause(*other).MarkEnded(board_.get(), scope)) continue;
    NoteSharedChange();
    return EndedWrongly(scope, "on another thread than it began on");
  }
  return NotFound("scope ", scope, " has ended, or never began");
}

// Shared scopes of other streams narrow too: the answer then holds for fewer sizes than it could.
void ScopeTable::Narrow(SizeRange& alike, uint64_t bytes) const {
  if (own_state.scopes != nullptr) own_state.scopes->Narrow(alike, bytes);
  if (!MayBeShared()) return;
  MutexLock lock(board_->mutex);
  for (const SharedScope& scope : shared_list_) alike.Narrow(scope.plan.sizes, bytes);
}

// This thread's own scope wins unless a shared scope began after it. So `outer` is the place of the own scope: shared
// scopes before it do not matter.
std::optional<CaughtBy> ScopeTable::Route(const RoutedRequest& request, const ScopePlace& inner) const {
  std::optional<CaughtBy> own;
  if (const OwnScopes* const stack = own_state.scopes) own = stack->CatchingBefore(board_.get(), request, inner);
  const ScopePlace outer = own ? own->place : kOutermost;
  // Most programs have none: one load.
  if (!MayBeShared()) return own;
  MutexLock lock(board_->mutex);
  for (auto scope = shared_list_.rbegin(); scope != shared_list_.rend() && scope->place() > outer; ++scope) {
    if (scope->place() < inner && scope->Catches(request)) return scope->caught();
  }
  return own;
}

// The flag may fall only where no thread has an open scope. The first look is cheap and mostly says no. The second one
// pauses all threads. Called now and then by a thread whose allocations no scope catches: callers that see the flag
// down ask no scope at all.
void ScopeTable::LowerFlag() {
  if (own_state.scopes != nullptr) own_state.scopes->EraseEnded();
  MutexLock lock(board_->mutex);
  if (!shared_list_.empty()) return;
  const auto may_be_open = [](const OwnScopes* stack) { return stack->MayBeOpen(); };
  if (std::any_of(board_->stacks.begin(), board_->stacks.end(), may_be_open)) return;
  // Nobody may begin a scope between the look and the store.
  std::vector<OwnScopes::Pause> pauses;
  pauses.reserve(board_->stacks.size());
  for (OwnScopes* const stack : board_->stacks) {
    if (stack != own_state.scopes) pauses.emplace_back(*stack);
  }
  for (const OwnScopes::Pause& pause : pauses) {
    if (!pause.empty()) return;
  }
  board_->flag->store(0, std::memory_order_relaxed);
}

}  // namespace commpool::internal
