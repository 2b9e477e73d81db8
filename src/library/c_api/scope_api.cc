// The C ABI: scopes and captures, which a program begins and ends.
#include <utility>

#include "commpool/commpool.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/open_scopes.h"
#include "src/library/c_api/options.h"
#include "src/library/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

constinit std::atomic<uint64_t> commpool::internal::open_scopes{0};
const std::atomic<uint64_t>* const commpool_open_scopes = &commpool::internal::open_scopes;

namespace {

// Begins a usual scope of this thread without a lock. For every other scope it does nothing and returns 0.
ScopeHandle BeginAtOnce(commpool_pool pool, const commpool_scope_options* options) {
  static constexpr commpool_scope_options kUsual = {
      sizeof(kUsual), COMMPOOL_FILTER_THREAD, COMMPOOL_EXHAUSTION_ERROR, nullptr, 0, UINT64_MAX};
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr) return 0;
  if (options == nullptr) options = &kUsual;
  const int32_t exhaustion = NumberOf(options->exhaustion);
  const bool usual = options->struct_bytes == sizeof(*options) && NumberOf(options->filter) == COMMPOOL_FILTER_THREAD &&
                     options->min_bytes <= options->max_bytes;
  const bool hands_on = exhaustion == COMMPOOL_EXHAUSTION_NEXT_SCOPE;
  if (!usual || (!hands_on && exhaustion != COMMPOOL_EXHAUSTION_ERROR)) return 0;
  return runtime->BeginScopeAtOnce(pool, {options->min_bytes, options->max_bytes},
                                   hands_on ? Exhaustion::kNextScope : Exhaustion::kError);
}

// A separate function, so that the fast path saves no registers.
[[gnu::noinline]] commpool_status Begin(commpool_pool pool, const commpool_scope_options* options,
                                        commpool_scope* scope) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (scope == nullptr) return NullOutput();
    ScopeRequest request = COMMPOOL_TRY(ParseScopeOptions(options));
    std::shared_ptr<Pool> found = COMMPOOL_TRY(runtime.pools().Find(pool));
    if (request.filter == ScopeFilter::kStream) {
      const StreamName name = COMMPOOL_TRY(runtime.NameOf(options->stream, found->device()));
      request.stream = name.identity;
    }
    request.pool = std::move(found);
    return Store(runtime.BeginScope(request), scope);
  });
}

[[gnu::noinline]] commpool_status End(commpool_scope scope) {
  return WithRuntime([&](Runtime& runtime) { return runtime.EndScope(scope); });
}

}  // namespace

commpool_status commpool_scope_begin(commpool_pool pool, const commpool_scope_options* options, commpool_scope* scope) {
  const ScopeHandle begun = scope == nullptr ? 0 : BeginAtOnce(pool, options);
  if (begun == 0) return Begin(pool, options, scope);
  *scope = begun;
  return COMMPOOL_OK;
}

commpool_status commpool_scope_end(commpool_scope scope) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime != nullptr && runtime->EndScopeAtOnce(scope)) return COMMPOOL_OK;
  return End(scope);
}

commpool_status commpool_capture_begin(commpool_pool pool, CUstream_st* stream, commpool_capture* capture) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (capture == nullptr) return NullOutput();
    return Store(runtime.BeginCapture(pool, stream), capture);
  });
}

commpool_status commpool_capture_end(commpool_capture capture) {
  return WithRuntime([&](Runtime& runtime) { return runtime.EndCapture(capture); });
}
