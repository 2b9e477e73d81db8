#include "src/pool/scope_table.h"

#include <iterator>
#include <utility>
#include <vector>

namespace commpool::internal {

namespace {

struct ThreadScope {
  const ScopeTable* table = nullptr;
  ScopeHandle handle = 0;
  std::shared_ptr<Pool> pool;
  SizeRange sizes = {};
  Exhaustion exhaustion = Exhaustion::kError;

  bool Catches(const ScopeTable* asked, int device, uint64_t bytes) const {
    return table == asked && pool->device() == device && sizes.Has(bytes);
  }
};

// Innermost last. A process has one table; tests have several.
thread_local std::vector<ThreadScope> thread_scopes;

// The same, null before the thread's first scope: it costs the fast path one load.
thread_local constinit const std::vector<ThreadScope>* own_scopes = nullptr;

}  // namespace

Result<ScopeHandle> ScopeTable::Begin(ScopeRequest request) {
  if (request.sizes.least > request.sizes.most) {
    return Status(StatusCode::kInvalidArgument, "a scope's least size, " + std::to_string(request.sizes.least) +
                                                    " bytes, is above its most, " + std::to_string(request.sizes.most));
  }
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
    thread_scopes.push_back({this, handle, request.pool, request.sizes, request.exhaustion});
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

std::optional<PoolHandle> ScopeTable::RouteAtOnce(int device, uint64_t bytes) const {
  if (shared_scopes_.load(std::memory_order_acquire) != 0) return std::nullopt;
  if (own_scopes == nullptr) return PoolHandle{0};
  for (auto scope = own_scopes->rbegin(); scope != own_scopes->rend(); ++scope) {
    if (scope->Catches(this, device, bytes)) return scope->pool->handle();
  }
  return PoolHandle{0};
}

std::optional<CaughtBy> ScopeTable::Route(const RoutedRequest& request, ScopeHandle inner) const {
  std::optional<CaughtBy> own;
  for (auto scope = thread_scopes.rbegin(); scope != thread_scopes.rend(); ++scope) {
    if (scope->handle >= inner || !scope->Catches(this, request.device, request.bytes)) continue;
    own = CaughtBy{scope->handle, scope->pool, scope->exhaustion};
    break;
  }
  if (shared_scopes_.load(std::memory_order_acquire) == 0) return own;
  const ScopeHandle winner = own ? own->scope : 0;
  MutexLock lock(mutex_);
  for (auto entry = std::make_reverse_iterator(open_.lower_bound(inner));
       entry != open_.rend() && entry->first > winner; ++entry) {
    const ScopeRequest& scope = entry->second.request;
    if (scope.filter == ScopeFilter::kThread || scope.pool->device() != request.device) continue;
    if (scope.filter == ScopeFilter::kStream && scope.stream != request.stream) continue;
    if (scope.sizes.Has(request.bytes)) return CaughtBy{entry->first, scope.pool, scope.exhaustion};
  }
  return own;
}

}  // namespace commpool::internal
