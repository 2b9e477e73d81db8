// PoolScope: while it lives, allocations that its filter catches go to its pool, in however deep code.
//
//   PoolScope scope(pool);                                     // this thread
//   PoolScope scope(pool, {Filter::kStream, backward_stream}); // one stream, from any thread
//   PoolScope scope(pool, {.sizes = {MiB(1), UINT64_MAX}, .exhaustion = Exhaustion::kNextScope});  // C++20
//
// A program without exceptions begins it with PoolScope::begin. Scopes nest: the one begun last wins. A scope catches
// allocations on its pool's device only. A thread's scope ends on that thread, before the thread's earlier scopes;
// otherwise it ends too, with a warning on stderr.
#ifndef COMMPOOL_SCOPE_H_
#define COMMPOOL_SCOPE_H_

#include <cstdint>
#include <utility>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

enum class Filter {
  kThread = COMMPOOL_FILTER_THREAD,
  kStream = COMMPOOL_FILTER_STREAM,
  kProcess = COMMPOOL_FILTER_PROCESS
};

// Both ends included.
struct SizeRange {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = UINT64_MAX;
};

enum class Exhaustion {
  kError = COMMPOOL_EXHAUSTION_ERROR,
  kNextScope = COMMPOOL_EXHAUSTION_NEXT_SCOPE  // the next scope further out, in the end the default pool
};

struct ScopeOptions {
  Filter filter = Filter::kThread;
  Stream stream = nullptr;  // of a kStream filter
  SizeRange sizes = {};     // smaller and larger requests are not caught
  Exhaustion exhaustion = Exhaustion::kError;
};

class [[nodiscard]] PoolScope {
 public:
  static Result<PoolScope> begin(commpool_pool pool, const ScopeOptions& options = {}) {
    const commpool_scope_options c_options = ToC(options);
    commpool_scope scope = 0;
    const commpool_status begun = commpool_scope_begin(pool, &c_options, &scope);
    if (begun != COMMPOOL_OK) return detail::FromC(begun);
    return PoolScope(Begun{scope});
  }
  static Result<PoolScope> begin(const Pool& pool, const ScopeOptions& options = {}) {
    return begin(pool.handle(), options);
  }

  // The same as begin(); throws commpool::Error where the scope cannot begin. A scope that routes nothing would be
  // worse.
  explicit PoolScope(const Pool& pool, const ScopeOptions& options = {}) : PoolScope(pool.handle(), options) {}
  explicit PoolScope(commpool_pool pool, const ScopeOptions& options = {}) : PoolScope(begin(pool, options).value()) {}

  // Do not move a thread's scope to another thread.
  PoolScope(PoolScope&& other) noexcept : scope_(std::exchange(other.scope_, 0)) {}
  PoolScope& operator=(PoolScope&&) = delete;
  ~PoolScope() {
    if (scope_ != 0) commpool_scope_end(scope_);
  }

 private:
  struct Begun {
    commpool_scope scope = 0;
  };
  explicit PoolScope(Begun begun) : scope_(begun.scope) {}

  static commpool_scope_options ToC(const ScopeOptions& options) {
    commpool_scope_options c_options;
    commpool_scope_options_init(&c_options);
    c_options.filter = static_cast<commpool_filter>(options.filter);
    c_options.stream = options.stream;
    c_options.min_bytes = options.sizes.min_bytes;
    c_options.max_bytes = options.sizes.max_bytes;
    c_options.exhaustion = static_cast<commpool_exhaustion>(options.exhaustion);
    return c_options;
  }

  commpool_scope scope_ = 0;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_SCOPE_H_
