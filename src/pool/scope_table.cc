#include "src/pool/scope_table.h"

#include <utility>
#include <vector>

namespace commpool {

namespace {

struct ThreadScope {
  const ScopeTable* table = nullptr;
  ScopeHandle handle = 0;
  std::shared_ptr<Pool> pool;
};

// Innermost last. A process has one table; tests have several.
thread_local std::vector<ThreadScope> thread_scopes;

// The same, null before the thread's first scope: it costs the fast path one load.
thread_local constinit const std::vector<ThreadScope>* own_scopes __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

Result<ScopeHandle> ScopeTable::Begin(ScopeRequest request) {
  if (request.filter == ScopeFilter::kProcess && request.pool->symmetric()) {
    return Status(StatusCode::kInvalidArgument,
                  "pool " + request.pool->name() +
                      " is symmetric and refuses a process-wide scope: threads would allocate in a different order on "
                      "each rank; use a thread's or a stream's scope");
  }
  MutexLock lock(mutex_);
  const ScopeHandle handle = next_++;
  if (request.filter == ScopeFilter::kThread) {
    own_scopes = &thread_scopes;
    thread_scopes.push_back({this, handle, request.pool});
  } else {
    shared_scopes_.fetch_add(1, std::memory_order_release);
  }
  open_.emplace(handle, Entry{std::move(request), std::this_thread::get_id()});
  return handle;
}

Status ScopeTable::EndThreadScope(ScopeHandle scope) {
  if (open_.at(scope).owner != std::this_thread::get_id()) {
    return Status(StatusCode::kFailedPrecondition,
                  "scope " + std::to_string(scope) + " ends on another thread than it began on: it stays open");
  }
  for (auto innermost = thread_scopes.rbegin(); innermost != thread_scopes.rend(); ++innermost) {
    if (innermost->table != this) continue;
    if (innermost->handle != scope) {
      return Status(StatusCode::kFailedPrecondition, "scope " + std::to_string(scope) +
                                                         " is not this thread's innermost: end scope " +
                                                         std::to_string(innermost->handle) + " first");
    }
    thread_scopes.erase(std::next(innermost).base());
    return Status();
  }
  return Status();
}

Status ScopeTable::End(ScopeHandle scope) {
  std::shared_ptr<Pool> last_reference;  // outlives the lock
  MutexLock lock(mutex_);
  const auto found = open_.find(scope);
  if (found == open_.end()) {
    return Status(StatusCode::kNotFound, "scope " + std::to_string(scope) + " has ended, or never began");
  }
  if (found->second.request.filter == ScopeFilter::kThread) {
    Status status = EndThreadScope(scope);
    if (!status.ok()) return status;
  } else {
    shared_scopes_.fetch_sub(1, std::memory_order_release);
  }
  last_reference = std::move(found->second.request.pool);
  open_.erase(found);
  return Status();
}

std::optional<PoolHandle> ScopeTable::RouteAtOnce(int device) const {
  if (shared_scopes_.load(std::memory_order_acquire) != 0) return std::nullopt;
  if (own_scopes == nullptr) return PoolHandle{0};
  for (auto scope = own_scopes->rbegin(); scope != own_scopes->rend(); ++scope) {
    if (scope->table == this && scope->pool->device() == device) return scope->pool->handle();
  }
  return PoolHandle{0};
}

std::shared_ptr<Pool> ScopeTable::Route(int device, StreamKey stream) const {
  ScopeHandle winner = 0;
  std::shared_ptr<Pool> pool;
  for (auto scope = thread_scopes.rbegin(); scope != thread_scopes.rend(); ++scope) {
    if (scope->table != this || scope->pool->device() != device) continue;
    winner = scope->handle;
    pool = scope->pool;
    break;
  }
  if (shared_scopes_.load(std::memory_order_acquire) == 0) return pool;
  MutexLock lock(mutex_);
  for (auto entry = open_.rbegin(); entry != open_.rend() && entry->first > winner; ++entry) {
    const ScopeRequest& request = entry->second.request;
    if (request.filter == ScopeFilter::kThread || request.pool->device() != device) continue;
    if (request.filter == ScopeFilter::kStream && request.stream != stream) continue;
    return request.pool;
  }
  return pool;
}

}  // namespace commpool
