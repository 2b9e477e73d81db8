// Scopes of threads, which follow autograd: an open one is in PyTorch's thread-local debug info, which backward()
// passes to its worker threads. It catches nothing on other threads. And scopes that all threads share.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "src/library/pool/scopes/plan.h"
#include "src/torch/native.h"

namespace commpool::torch_adapter {

using internal::ScopePlan;

// No device's: what is pinned, and a pool of a device that is not known.
inline constexpr int kNoDevice = -1;

struct Request {
  int device = 0;
  uint64_t bytes = 0;
  CUstream_st* stream = nullptr;
};

// Owns one open scope. PyTorch's debug info and the program's handle hold it, or SharedScopes; AllocateInScopes reads
// it.
class OpenScope : public c10::DebugInfoBase {
 public:
  OpenScope(const ScopePlan& plan, bool symmetric, const OpenScope* outer, uint64_t number, uint64_t shared_handle = 0,
            std::optional<CUstream_st*> stream = {})
      : plan(plan), symmetric(symmetric), outer(outer), number(number), shared_handle(shared_handle), stream(stream) {}

  bool Catches(const Request& request) const {
    return !ended.load(std::memory_order_relaxed) && plan.Catches(request.device, request.bytes) &&
           (!stream || *stream == request.stream) &&
           (stream != cudaStreamPerThread || thread == std::this_thread::get_id());  // each thread has its own
  }

  const ScopePlan plan;
  const bool symmetric;          // the pool is symmetric
  const OpenScope* const outer;  // lives as long as this one, because PyTorch's debug info holds its parents
  const uint64_t number;  // scopes and PyTorch's own routings count together: the larger number is further inside
  const uint64_t shared_handle;              // of a scope that all threads share; 0: it is a thread's
  const std::optional<CUstream_st*> stream;  // it catches this one alone
  const std::thread::id thread = std::this_thread::get_id();
  std::atomic<bool> ended{false};
  std::shared_ptr<OpenScope> self;  // until the program leaves it, so that its handle is valid on every thread
};

// Returns the next number for a scope or a routing.
uint64_t NextCatcherNumber();

// Owns a list of open scopes that every thread asks. They end on any thread, in any order, each by its handle.
class SharedScopes {
 public:
  void Begin(uint64_t handle, const ScopePlan& plan, bool symmetric, std::optional<CUstream_st*> stream) {
    const std::lock_guard lock(mutex_);
    open_.push_back(std::make_shared<OpenScope>(plan, symmetric, nullptr, NextCatcherNumber(), handle, stream));
    open_count_.fetch_add(1, std::memory_order_relaxed);
  }
  // Returns false if the scope is not open.
  bool End(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (std::erase_if(open_, [handle](const auto& scope) { return scope->shared_handle == handle; }) == 0) return false;
    open_count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  bool None() const { return open_count_.load(std::memory_order_relaxed) == 0; }
  // Returns the scope that catches the request and began last of those before number `before`; null if there is none.
  std::shared_ptr<const OpenScope> Innermost(const Request& request, uint64_t before = UINT64_MAX) {
    if (None()) return nullptr;
    const std::lock_guard lock(mutex_);
    for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope)
      if ((*scope)->number < before && (*scope)->Catches(request)) return *scope;
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const OpenScope>> open_;  // in the order in which they began
  std::atomic<int> open_count_{0};
};

// Scopes of streams and of the process. The library has begun each of them too, for what is not PyTorch's.
inline constinit Forever<SharedScopes> shared_scopes;
inline SharedScopes& ScopesOfAllThreads() { return shared_scopes.object; }

OpenScope* EnterScope(const ScopePlan& plan, bool symmetric);

// Ends the scope at once for all threads that see it, and says how the program left it. Each scope is left once.
enum class Left { kInOrder, kBeforeAnInnerOne, kOnAnotherThread };
Left LeaveScope(OpenScope* scope);

// Returns the scope that catches this thread's request and began last of those before number `before`; null if there is
// none. A thread sees its own scopes, those of the backward() that it works for, and those that all threads share.
std::shared_ptr<const OpenScope> CatchingScope(const Request& request, uint64_t before = UINT64_MAX);

}  // namespace commpool::torch_adapter
