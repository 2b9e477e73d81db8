// OwnScopes: what takes the owner's lock after a wait, or the board's. The header has what a thread does without
// either.
#include "src/library/pool/scopes/own_scopes.h"

#include <algorithm>
#include <array>
#include <thread>

#include "src/library/base/fork_guard.h"
#include "src/library/base/of_this_thread.h"

namespace commpool::internal {

namespace {

// Scopes that were open when the thread began to end: its last destructors may still end them. Nobody nests as many.
// The array is the thread's own: ~OwnScopes fills it, TakeEnded empties it.
struct EndedScope {
  const ScopeBoard* board = nullptr;
  ScopeHandle scope = 0;
};
thread_local constinit std::array<EndedScope, 32> ended_scopes = {};

// The owner's lock, after a wait for a thread that looks. Only the owner uses it. Whoever looks calls nothing
// meanwhile, so spinning is enough.
struct Hold {
  explicit Hold(OwnerLock& owned) : lock(owned) {
    while (!lock.TryLockAsOwner()) std::this_thread::yield();
  }
  ~Hold() { lock.UnlockAsOwner(); }
  OwnerLock& lock;
};

}  // namespace

// Called by the stack's own thread. The board lists the stack, so that others find it; the stack keeps the board alive,
// because the thread takes itself off that list when it ends. Takes the board's lock once for each table that the
// thread uses.
OwnScopes* OwnScopes::Join(const std::shared_ptr<ScopeBoard>& board) {
  if (own_state.scopes == nullptr) own_state.scopes = OfThisThread<OwnScopes, ScopeBoard>();
  OwnScopes* const own = own_state.scopes;
  if (own == nullptr || std::find(own->joined_.begin(), own->joined_.end(), board) != own->joined_.end()) return own;
  // Forgets boards whose table is gone: only this thread still has them.
  std::erase_if(own->joined_, [](const std::shared_ptr<ScopeBoard>& joined) { return joined.use_count() == 1; });
  // Before the board has the stack: a failure here leaves neither list changed.
  own->joined_.reserve(own->joined_.size() + 1);
  {
    MutexLock lock(board->mutex);
    board->stacks.push_back(own);
  }
  own->joined_.push_back(board);
  return own;
}

// InForkedChild: so that it knows this process as the parent.
OwnScopes::OwnScopes() : slots_(kUsualDepth) { static_cast<void>(InForkedChild()); }

// Keeps the open scopes where later destructors of this thread still find them: in an array that nobody destroys. Runs
// as the thread ends, without a lock of ours. From the first line on this thread begins no scope.
OwnScopes::~OwnScopes() {
  own_state.scopes = nullptr;
  // Another thread of the parent may have held a board's lock.
  if (InForkedChild()) return;
  for (size_t place = 0; place < std::min(depth_, ended_scopes.size()); ++place) {
    ended_scopes[place] = {slots_[place].Board(), slots_[place].handle};
  }
  // After this nobody else can look at the stack: whoever looks holds the board's lock.
  for (const std::shared_ptr<ScopeBoard>& board : joined_) {
    MutexLock lock(board->mutex);
    std::erase(board->stacks, this);
  }
}

// The scope's guard may be a thread-local object, which is destroyed after the stack of scopes.
bool OwnScopes::TakeEnded(const ScopeBoard* board, ScopeHandle scope) {
  for (EndedScope& ended : ended_scopes) {
    if (ended.scope != scope || ended.board != board) continue;
    ended = {};
    return true;
  }
  return false;
}

// Takes many handles from the board at a time: so most scopes begin without a store that other threads wait for.
// Handles of a table that the thread used before are not taken up again: a number lost costs nothing.
ScopeHandle OwnScopes::PushSlowly(ScopeBoard& board, const ScopePlan& plan) {
  // First without more memory: other threads may have ended scopes that are still in the stack.
  if (depth_ == slots_.size()) EraseEnded();
  const Hold hold(lock_);
  if (depth_ == slots_.size()) slots_.resize(2 * depth_);
  if (board_ != &board || next_handle_ == end_of_handles_) {
    next_handle_ = board.next_handle.fetch_add(kHandlesAtOnce, std::memory_order_relaxed);
    end_of_handles_ = next_handle_ + kHandlesAtOnce;
    board_ = &board;
  }
  return Push(board, plan);
}

// Slow, because a scope in the middle moves the others down; programs mostly end the innermost (PopAtOnce). Keeps the
// order of the others, which is the order in which they began.
void OwnScopes::Erase(const ScopeBoard* board, ScopeHandle scope) {
  const Hold hold(lock_);
  // Also takes off what other threads have marked, whichever scope was asked for.
  OwnScope* const last = slots_.data() + depth_;
  OwnScope* const kept = std::remove_if(
      slots_.data(), last, [&](const OwnScope& own) { return own.Board() == nullptr || own.Is(board, scope); });
  if (kept != last) SetDepth(static_cast<size_t>(kept - slots_.data()));
}

// Another thread calls it. It moves no scope: only the owner may do that.
bool OwnScopes::Pause::MarkEnded(const ScopeBoard* board, ScopeHandle scope) {
  OwnScope* const last = scopes_->slots_.data() + scopes_->depth_;
  OwnScope* const found =
      std::find_if(scopes_->slots_.data(), last, [&](const OwnScope& own) { return own.Is(board, scope); });
  if (found != last) found->MarkEnded();
  return found != last;
}

// From the top down, so the first that catches is the innermost.
std::optional<CaughtBy> OwnScopes::CatchingBefore(const ScopeBoard* board, const RoutedRequest& request,
                                                  const ScopePlace& inner) const {
  for (const OwnScope* scope = end(); scope != begin();) {
    --scope;
    const ScopePlace place{scope->shared_before, static_cast<uint64_t>(scope - begin()) + 1};
    if (place < inner && scope->Catches(board, request.device, request.bytes)) {
      return CaughtBy{scope->handle, place, scope->plan.pool, scope->plan.exhaustion};
    }
  }
  return std::nullopt;
}

// Scopes of other tables and scopes that have ended lie between, and do not count.
const OwnScope* OwnScopes::Innermost(const ScopeBoard* board) const {
  for (const OwnScope* scope = end(); scope != begin();) {
    if ((--scope)->Board() == board) return scope;
  }
  return nullptr;
}

bool OwnScopes::Has(const ScopeBoard* board, ScopeHandle scope) const {
  return std::any_of(begin(), end(), [&](const OwnScope& own) { return own.Is(board, scope); });
}

}  // namespace commpool::internal
