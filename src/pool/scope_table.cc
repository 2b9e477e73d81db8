#include "src/pool/scope_table.h"

#include <iterator>
#include <utility>
#include <vector>

#include "src/base/of_this_thread.h"

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

// Innermost last; null before the thread's first scope and once they have ended with the thread. A process has one
// table; tests have several.
thread_local constinit std::vector<ThreadScope>* own_scopes = nullptr;

struct OwnScopes {
  std::vector<ThreadScope> list;
  ~OwnScopes() { own_scopes = nullptr; }
};

// Null while the thread ends.
std::vector<ThreadScope>* MakeOwnScopes() {
  if (own_scopes != nullptr) return own_scopes;
  OwnScopes* const made = OfThisThread<OwnScopes, ScopeTable>();
  if (made != nullptr) own_scopes = &made->list;
  return own_scopes;
}

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
  std::vector<ThreadScope>* const own = MakeOwnScopes();
  if (request.filter == ScopeFilter::kThread && own == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "this thread is ending, and its scopes have ended: no scope of it can begin any more");
  }
  MutexLock lock(mutex_);
  const ScopeHandle handle = next_++;
  if (request.filter == ScopeFilter::kThread) {
    own->push_back({this, handle, request.pool, request.sizes, request.exhaustion});
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
  if (own_scopes == nullptr) return Status();  // the thread is ending
  for (auto innermost = own_scopes->rbegin(); innermost != own_scopes->rend(); ++innermost) {
    if (innermost->table != this) continue;
    if (innermost->handle != scope) {
      return Status(StatusCode::kFailedPrecondition, "scope " + std::to_string(scope) +
                                                         " is not this thread's innermost: end scope " +
                                                         std::to_string(innermost->handle) + " first");
    }
    own_scopes->erase(std::next(innermost).base());
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

std::optional<CaughtBy> ScopeTable::RouteToOwn(const RoutedRequest& request, ScopeHandle inner) const {
  if (own_scopes == nullptr) return std::nullopt;
  for (auto scope = own_scopes->rbegin(); scope != own_scopes->rend(); ++scope) {
    if (scope->handle >= inner || !scope->Catches(this, request.device, request.bytes)) continue;
    return CaughtBy{scope->handle, scope->pool, scope->exhaustion};
  }
  return std::nullopt;
}

std::optional<CaughtBy> ScopeTable::Route(const RoutedRequest& request, ScopeHandle inner) const {
  const std::optional<CaughtBy> own = RouteToOwn(request, inner);
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
