#include "src/adapters/torch/surface.h"

#include <exception>
#include <new>
#include <string>

#include "src/adapters/torch/call_lines.h"
#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"
#include "src/adapters/torch/routings.h"
#include "src/adapters/torch/scopes.h"

// NOLINTBEGIN: this file is the other side of the router
using namespace commpool::torch_adapter;
// NOLINTEND

namespace {

constexpr int kFailed = -1;
constexpr uint8_t kPriority = 1;  // PyTorch's own has 0; the same priority may replace it again

std::string& LastError() {
  static thread_local std::string sentence;
  return sentence;
}

int Fail(const std::string& sentence) {
  LastError() = sentence;
  return kFailed;
}

void Put(TorchAllocator* allocator) {
  c10::cuda::CUDACachingAllocator::allocator.store(allocator);
  c10::SetAllocator(c10::kCUDA, allocator, kPriority);  // torch.accelerator asks this one
}

bool IsInPlace() { return c10::cuda::CUDACachingAllocator::get() == &TheRouter(); }

// Nothing is thrown into C.
template <typename Body>
int Guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Fail(error.what());
  }
}

}  // namespace

#define COMMPOOL_TORCH_TEXT(value) #value
#define COMMPOOL_TORCH_VERSION(major, minor) COMMPOOL_TORCH_TEXT(major) "." COMMPOOL_TORCH_TEXT(minor)

const char* commpool_torch_built_for() { return COMMPOOL_TORCH_VERSION(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR); }

const char* commpool_torch_last_error() { return LastError().c_str(); }

int commpool_torch_install(const char* libcommpool) {
  return Guarded([libcommpool] {
    if (Commpool().free == nullptr)
      if (const std::string missing = OpenCommpool(libcommpool); !missing.empty()) return Fail(missing);
    Hot().open_scopes = Commpool().open_scopes;
    if (!IsInPlace()) {
      TorchAllocator* native = c10::cuda::CUDACachingAllocator::get();
      if (native == nullptr) return Fail("PyTorch has no CUDA allocator yet: import torch first");
      Hot().native = native;
      OfferNativeCache();
      Put(&TheRouter());
      TakeOver();
    } else {
      Pools().GrantAgain();
    }
    TheRouter().Route(true);
    return 0;
  });
}

int commpool_torch_uninstall() {
  return Guarded([] {
    TheRouter().Route(false);
    if (!IsInPlace()) return 0;
    // PyTorch's own allocator would refuse to free a raw block of ours, forget streams recorded on a tensor of ours,
    // and does not know our MemPools.
    if (Pools().LiveBlocks() != 0 || TorchRoutings().AnyOfOurs()) return 1;
    Put(Native());
    return 0;
  });
}

int commpool_torch_installed() { return IsInPlace() && TheRouter().Routes() ? 1 : 0; }

int commpool_torch_misses_history() {
  return Guarded([] { return MissesHistory() ? 1 : 0; });
}

void commpool_torch_record_ours_only(int ours_only) { RecordsOursOnly() = ours_only != 0; }

int commpool_torch_know_pool(commpool_pool pool, int device, int symmetric) {
  return Guarded([=] {
    Pools().Add(pool, device, symmetric != 0 ? Trimming::kCollective : Trimming::kAllowed);
    return 0;
  });
}

int commpool_torch_grant_again() {
  return Guarded([] {
    Pools().GrantAgain();
    return 0;
  });
}

int commpool_torch_keep(commpool_pool pool, uint64_t bytes) {
  Pools().Keep(pool, bytes);
  return 0;
}

int commpool_torch_set_default(int device, commpool_pool pool) {
  if (device < 0 || device >= KnownPools::kDevices) return Fail("no such device");
  Pools().SetDefault(device, pool);
  return 0;
}

void commpool_torch_bind_next(commpool_pool pool) { TorchRoutings().BindNext(pool); }

void commpool_torch_watch_calls(commpool_torch_on_call on_call, commpool_torch_explain explain) {
  CallWatcher().store(on_call, std::memory_order_relaxed);
  CallExplainer().store(explain, std::memory_order_relaxed);
}

void* commpool_torch_scope_enter(const commpool_torch_plan* plan) try {
  return EnterScope(*plan);
} catch (const std::exception& error) {
  Fail(error.what());
  return nullptr;
}

int commpool_torch_scope_leave(void* scope) {
  return LeaveScope(static_cast<OpenScope*>(scope)) == Left::kEnded ? 0 : 1;
}

commpool_pool commpool_torch_caught_by(int device, uint64_t bytes) {
  for (const OpenScope* scope = InnermostScope(); scope != nullptr; scope = scope->outer)
    if (!scope->ended.load(std::memory_order_relaxed) && Catches(scope->plan, device, bytes)) return scope->plan.pool;
  return 0;
}
