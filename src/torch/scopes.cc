#include "src/torch/scopes.h"

#include <string_view>

#include "src/torch/native.h"

namespace commpool::torch_adapter {
namespace {

#if COMMPOOL_TORCH_AT_LEAST(13)
constexpr std::string_view kScopeName = "COMMPOOL_SCOPE";
constexpr c10::DebugInfoKind kScope(&kScopeName);
#else
// Before 2.13 the list of kinds is closed. Only PyTorch's own tests use this kind.
constexpr c10::DebugInfoKind kScope = c10::DebugInfoKind::TEST_INFO_2;
#endif

// Owns the entry of PyTorch's profiler in the debug info while a scope begins or ends. Debug info is a stack. When the
// profiler stops, it removes the top entry and expects its own, even inside a scope that began later. So its entry must
// stay above ours.
class LiftedProfiler {
 public:
  LiftedProfiler() {
    if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr) return;
    try {
      state_ = c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
    } catch (const c10::Error&) {
      // It is not on top.
    }
  }
  ~LiftedProfiler() {
    if (state_ != nullptr) c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::move(state_));
  }
  LiftedProfiler(const LiftedProfiler&) = delete;
  LiftedProfiler& operator=(const LiftedProfiler&) = delete;

 private:
  std::shared_ptr<c10::DebugInfoBase> state_;
};

// Returns the innermost scope of this thread, or of the backward() that it works for. The scope may have ended.
const OpenScope* InnermostScope() { return static_cast<const OpenScope*>(c10::ThreadLocalDebugInfo::get(kScope)); }

bool PopInnermost() {
  try {
    c10::ThreadLocalDebugInfo::_pop(kScope);
    return true;
  } catch (const c10::Error&) {
    return false;  // PyTorch has put something on top that has not ended; this scope catches nothing any more
  }
}

void PopEndedScopes() {
  const LiftedProfiler lifted;
  for (const OpenScope* scope = InnermostScope(); scope != nullptr && scope->ended.load(std::memory_order_relaxed);
       scope = InnermostScope()) {
    if (!PopInnermost()) return;
  }
}

// Says whether an inner scope is open. False if the thread no longer sees this scope, because PyTorch restored earlier
// debug info.
bool HasOpenInside(const OpenScope* scope) {
  bool open = false;
  const OpenScope* inner = InnermostScope();
  for (; inner != nullptr && inner != scope; inner = inner->outer) {
    open = open || !inner->ended.load(std::memory_order_relaxed);
  }
  return inner == scope && open;
}

}  // namespace

uint64_t NextCatcherNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

OpenScope* EnterScope(const ScopePlan& plan, bool symmetric) {
  auto scope = std::make_shared<OpenScope>(plan, symmetric, InnermostScope(), NextCatcherNumber());
  OpenScope* handle = scope.get();
  scope->self = scope;
  {
    const LiftedProfiler lifted;
    c10::ThreadLocalDebugInfo::_push(kScope, std::move(scope));
  }
  Hot().catchers.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

Left LeaveScope(OpenScope* scope) {
  const std::shared_ptr<OpenScope> kept = std::move(scope->self);
  scope->ended.store(true, std::memory_order_relaxed);
  Hot().catchers.fetch_sub(1, std::memory_order_relaxed);
  if (scope->thread != std::this_thread::get_id()) return Left::kOnAnotherThread;
  if (HasOpenInside(scope)) return Left::kBeforeAnInnerOne;
  PopEndedScopes();
  return Left::kInOrder;
}

std::shared_ptr<const OpenScope> CatchingScope(const Request& request, uint64_t before) {
  std::shared_ptr<const OpenScope> shared = ScopesOfAllThreads().Innermost(request, before);
  const OpenScope* own = InnermostScope();
  while (own != nullptr && (own->number >= before || !own->Catches(request))) own = own->outer;
  const bool is_own = own != nullptr && (shared == nullptr || own->number > shared->number);
  // PyTorch's debug info keeps a scope of this thread for as long as the thread is busy here.
  return is_own ? std::shared_ptr<const OpenScope>(std::shared_ptr<void>(), own) : shared;
}

}  // namespace commpool::torch_adapter
