#include "src/torch/surface.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "src/torch/commpool_calls.h"
#include "src/torch/host_allocator.h"
#include "src/torch/host_scopes.h"
#include "src/torch/router.h"

// NOLINTBEGIN: this file is the other side of the router
using namespace commpool;
using namespace commpool::torch_adapter;
// NOLINTEND

namespace {

constexpr int kFailed = -1;
constexpr uint8_t kPriority = 1;  // PyTorch's own has 0; an allocator of the same priority may replace it again

std::string& LastError() {
  static thread_local std::string sentence;
  return sentence;
}

int Fail(const std::string& sentence) {
  LastError() = sentence;
  return kFailed;
}

c10::CachingDeviceAllocator::DeviceStats NativeStatistics(int device) {
  return Native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
}

// C calls this function, so it may throw nothing.
uint64_t CachedBytes(int device, void* /*context*/) try {
  const auto stats = NativeStatistics(device);
  return static_cast<uint64_t>(stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
} catch (const std::exception&) {
  return 0;
}

uint64_t ReleaseCached(int device, uint64_t /*bytes*/, void* /*context*/) try {
  // PyTorch may be capturing a graph. Then its cache can give nothing back, and the question would break the capture.
  if (!TorchRoutings().None()) return 0;
  const int64_t before = NativeStatistics(device).reserved_bytes[0].current;
  Native()->emptyCache();
  const int64_t after = NativeStatistics(device).reserved_bytes[0].current;
  return static_cast<uint64_t>(std::max<int64_t>(before - after, 0));
} catch (const std::exception&) {
  return 0;
}

// Tells the library once of PyTorch's cache, which it asks when a pool of ours runs out.
void OfferNativeCache() {
  static std::once_flag once;
  std::call_once(once, [] {
    commpool_holder_options options = {};
    options.struct_bytes = sizeof(options);
    options.name = "PyTorch's cache";
    options.cached_bytes = &CachedBytes;
    options.release = &ReleaseCached;
    commpool_holder holder = 0;
    Commpool().add_holder(&options, &holder);
  });
}

void Put(TorchAllocator* allocator) {
  c10::cuda::CUDACachingAllocator::allocator.store(allocator);
  c10::SetAllocator(c10::kCUDA, allocator, kPriority);  // torch.accelerator asks this one
}

bool IsInPlace() { return c10::cuda::CUDACachingAllocator::get() == &TheRouter(); }

// Throws nothing into C. A body without a result succeeds.
template <typename Body>
int Guarded(const Body& body) try {
  if constexpr (!std::is_void_v<decltype(body())>) return body();
  static_cast<void>(body());
  return 0;
} catch (const std::exception& error) {
  return Fail(error.what());
}

// Begins a scope of a stream or of the process, which libcommpool knows too; it rejects what is not valid. These
// handles are odd; those of threads' scopes are addresses, so they are even.
commpool_status BeginShared(const ScopePlan& plan, bool symmetric, const commpool_scope_options& options,
                            commpool_scope* scope) {
  commpool_scope begun = 0;
  const commpool_status status = Commpool().scope_begin(plan.pool, &options, &begun);
  if (status != COMMPOOL_OK) return status;
  std::optional<CUstream_st*> stream;
  // PyTorch calls the legacy stream null.
  if (options.filter == COMMPOOL_FILTER_STREAM) stream = options.stream == cudaStreamLegacy ? nullptr : options.stream;
  try {
    ScopesOfAllThreads().Begin(begun, plan, symmetric, stream);
  } catch (const std::bad_alloc&) {
    Commpool().scope_end(begun);
    throw;
  }
  *scope = 2 * begun + 1;
  return COMMPOOL_OK;
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
    // PyTorch's own allocator does not know our MemPools. It would refuse to free a raw block of ours, and would forget
    // streams that were recorded on a tensor of ours.
    if (LiveBlocks() > 0 || Pools().LiveBlocks() != 0 || TorchRoutings().AnyOfOurs()) return 1;
    Put(Native());
    return 0;
  });
}

int commpool_torch_installed() { return IsInPlace() && TheRouter().Routes() ? 1 : 0; }

int commpool_torch_misses_history() {
  return Guarded([] { return History::Misses() ? 1 : 0; });
}

void commpool_torch_record_ours_only(int ours_only) { History::ours_only = ours_only != 0; }

int commpool_torch_know_pool(commpool_pool pool, int device, int symmetric) {
  return Guarded([=] { Pools().Add(pool, device, symmetric != 0 ? PoolKind::kSymmetric : PoolKind::kOfOneRank); });
}

int commpool_torch_grant_again() {
  return Guarded([] { Pools().GrantAgain(); });
}

int commpool_torch_know_pinned(commpool_pool pool) {
  return Guarded([=] {
    if (const std::string reason = InstallHostAllocator(); !reason.empty())
      return Fail("pinned tensors stay PyTorch's own: " + reason);
    KnowPinned(pool);
    return 0;
  });
}

int commpool_torch_keep(commpool_pool pool, uint64_t bytes) {
  Pools().Change(pool, [bytes](KnownPool& known) { known.kept_bytes = bytes; });
  return 0;
}

int commpool_torch_set_default(int device, commpool_pool pool) {
  if (device < 0 || device >= KnownPools::kDevices) return Fail("no such device");
  Pools().SetDefault(device, pool);
  return 0;
}

void commpool_torch_bind_next(commpool_pool pool) { TorchRoutings().BindNext(pool); }

void commpool_torch_watch_calls(commpool_torch_on_call on_call, commpool_torch_explain explain) {
  call_watcher.store(on_call, std::memory_order_relaxed);
  call_explainer.store(explain, std::memory_order_relaxed);
}

void commpool_torch_raise_as(int status, void* python_class) {
  RaiseAs(status, static_cast<struct _object*>(python_class));
}

commpool_status commpool_torch_scope_begin(commpool_pool pool, const commpool_scope_options* options,
                                           commpool_scope* scope) try {
  static constexpr commpool_scope_options kUsual = {
      sizeof(kUsual), COMMPOOL_FILTER_THREAD, COMMPOOL_EXHAUSTION_ERROR, nullptr, 0, UINT64_MAX};
  if (options == nullptr) options = &kUsual;
  if (!TheRouter().Routes()) return COMMPOOL_NOT_CAUGHT;
  const internal::SizeRange sizes = {options->min_bytes, options->max_bytes};
  const auto exhaustion = static_cast<internal::Exhaustion>(options->exhaustion);
  std::optional<KnownPool> known = Pools().Of(pool);
  if (known && known->kind == PoolKind::kUnknown) known.reset();
  // The library alone knows scopes over other pools; here they catch nothing.
  const ScopePlan plan = {pool, sizes, known ? known->device : kNoDevice, exhaustion};
  const bool symmetric = known && known->kind == PoolKind::kSymmetric;
  const bool of_thread = options->filter == COMMPOOL_FILTER_THREAD && sizes.least <= sizes.most;
  if (!of_thread) return BeginShared(plan, symmetric, *options, scope);
  if (!known) {
    const std::optional<uint64_t> pinned = PinnedScopes().Begin(plan);
    *scope = pinned.value_or(0);
    return pinned ? COMMPOOL_OK : COMMPOOL_NOT_CAUGHT;
  }
  *scope = reinterpret_cast<uint64_t>(EnterScope(plan, symmetric));
  return COMMPOOL_OK;
} catch (const std::bad_alloc&) {
  return COMMPOOL_OUT_OF_MEMORY;  // the host has no memory for a scope
}

commpool_status commpool_torch_scope_end(commpool_scope scope) {
  if (HostScopes::IsHandle(scope)) return PinnedScopes().End(scope) ? COMMPOOL_OK : COMMPOOL_NOT_FOUND;
  if (scope % 2 != 0) ScopesOfAllThreads().End(scope / 2);
  if (scope == 0 || scope % 2 != 0) return Commpool().scope_end(scope / 2);
  switch (LeaveScope(reinterpret_cast<OpenScope*>(scope))) {
    case Left::kBeforeAnInnerOne:
      return COMMPOOL_INVALID_ARGUMENT;
    case Left::kOnAnotherThread:
      return COMMPOOL_FAILED_PRECONDITION;
    case Left::kInOrder:
      break;
  }
  return COMMPOOL_OK;
}

commpool_pool commpool_torch_caught_by(int device, uint64_t bytes, CUstream_st* stream) {
  const auto scope = CatchingScope({device, bytes, stream});
  return scope == nullptr || scope->shared_handle != 0 ? 0 : scope->plan.pool;
}
