// The C ABI: scopes.
#include <utility>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/open_scopes.h"
#include "src/c_api/options.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

constinit std::atomic<uint64_t> commpool::internal::open_scopes{0};

namespace {

Result<ScopeHandle> Begin(Runtime& runtime, ScopeRequest request) {
  open_scopes.fetch_add(1, std::memory_order_relaxed);
  Result<ScopeHandle> begun = runtime.scopes().Begin(std::move(request));
  if (!begun.ok()) open_scopes.fetch_sub(1, std::memory_order_relaxed);
  return begun;
}

}  // namespace

commpool_status commpool_scope_begin(commpool_pool pool, const commpool_scope_options* options, commpool_scope* scope) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (scope == nullptr) return NullOutput();
    Result<ScopeRequest> request = ParseScopeOptions(options);
    if (!request.ok()) return request.status();
    Result<std::shared_ptr<Pool>> found = runtime.pools().Find(pool);
    if (!found.ok()) return found.status();
    request->pool = std::move(*found);
    return Store(Begin(runtime, std::move(*request)), scope);
  });
}

commpool_status commpool_scope_end(commpool_scope scope) {
  return WithRuntime([&](Runtime& runtime) {
    Status status = runtime.scopes().End(scope);
    if (status.ok()) open_scopes.fetch_sub(1, std::memory_order_relaxed);
    return status;
  });
}
