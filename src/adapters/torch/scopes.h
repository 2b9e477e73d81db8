// Scopes that follow autograd: an open scope lies in PyTorch's own thread-local debug info, which backward() hands to
// the threads that run it. No scope catches what unrelated threads do.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_SCOPES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_SCOPES_H_

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "src/pool/scopes/plan.h"

namespace commpool::torch_adapter {

using internal::ScopePlan;

class OpenScope : public c10::DebugInfoBase {
 public:
  OpenScope(const ScopePlan& plan, bool symmetric, const OpenScope* outer, uint64_t number)
      : plan(plan), symmetric(symmetric), outer(outer), number(number), thread(std::this_thread::get_id()) {}

  bool Catches(int device, uint64_t bytes) const {
    return !ended.load(std::memory_order_relaxed) && plan.Catches(device, bytes);
  }

  const ScopePlan plan;
  const bool symmetric;          // the pool is
  const OpenScope* const outer;  // lives as long as this one: PyTorch's debug info holds its parents
  const uint64_t number;         // scopes and PyTorch's own routings count together: the larger one is further in
  const std::thread::id thread;
  std::atomic<bool> ended{false};
  std::shared_ptr<OpenScope> self;  // until it is left: a program's handle is good on every thread
};

// The next number of a scope or a routing.
uint64_t NextCatcherNumber();

OpenScope* EnterScope(const ScopePlan& plan, bool symmetric);

// Ends it at once, for whichever threads see it, and says how it was left. Each is left once.
enum class Left { kInOrder, kBeforeAnInnerOne, kOnAnotherThread };
Left LeaveScope(OpenScope* scope);

// The innermost scope that this thread sees, its own or that of the backward() it works for; ended ones included.
const OpenScope* InnermostScope();

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_SCOPES_H_
