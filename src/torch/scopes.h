// Scopes that follow autograd. An open scope is in PyTorch's thread-local debug info, which backward() passes to its
// worker threads. A scope catches nothing on other threads.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "src/library/pool/scopes/plan.h"

namespace commpool::torch_adapter {

using internal::ScopePlan;

// Owns one open scope. PyTorch's debug info and the program's handle hold it; AllocateInScopes reads it.
class OpenScope : public c10::DebugInfoBase {
 public:
  OpenScope(const ScopePlan& plan, bool symmetric, const OpenScope* outer, uint64_t number)
      : plan(plan), symmetric(symmetric), outer(outer), number(number), thread(std::this_thread::get_id()) {}

  bool Catches(int device, uint64_t bytes) const {
    return !ended.load(std::memory_order_relaxed) && plan.Catches(device, bytes);
  }

  const ScopePlan plan;
  const bool symmetric;          // the pool is symmetric
  const OpenScope* const outer;  // lives as long as this one, because PyTorch's debug info holds its parents
  const uint64_t number;  // scopes and PyTorch's own routings count together: the larger number is further inside
  const std::thread::id thread;
  std::atomic<bool> ended{false};
  std::shared_ptr<OpenScope> self;  // until the program leaves it, so that its handle is valid on every thread
};

// Returns the next number for a scope or a routing.
uint64_t NextCatcherNumber();

OpenScope* EnterScope(const ScopePlan& plan, bool symmetric);

// Ends the scope at once for all threads that see it, and says how the program left it. Each scope is left once.
enum class Left { kInOrder, kBeforeAnInnerOne, kOnAnotherThread };
Left LeaveScope(OpenScope* scope);

// Returns the innermost scope that this thread sees: its own, or that of the backward() that it works for. The scope
// may have ended.
const OpenScope* InnermostScope();

}  // namespace commpool::torch_adapter
