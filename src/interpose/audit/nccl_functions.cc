// NCCL's functions as a program sees them while it is audited. NCCL has no callbacks, so they are preloaded always.
#include "src/interpose/audit/nccl_functions.h"

#include <nccl.h>

#include <optional>

#include "src/interpose/audit/accounts.h"
#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/real_driver.h"
#include "src/interpose/audit/watched.h"
#include "src/interpose/nccl_memory/from_pools.h"

namespace commpool::audit {

namespace {

Outcome OutcomeOf(ncclResult_t result) {
  // A nonblocking communicator registers later, and has the handle at once.
  return result == ncclSuccess || result == ncclInProgress ? Outcome::kDone : Outcome::kFailed;
}

// `before` and `after` keep the books.
template <typename Before, typename After, typename... Arguments>
ncclResult_t Call(const char* name, const Before& before, const After& after, Arguments... arguments) {
  Watched& watched = *FindWatched(name);
  const auto real = reinterpret_cast<ncclResult_t (*)(Arguments...)>(RealOf(watched));
  if (real == nullptr) return ncclSystemError;
  if (!Audit::Get().settings.asked) return real(arguments...);
  Event event(watched.symbol);
  Quietly([&] { before(event); });
  event.Start();
  const ncclResult_t result = real(arguments...);
  event.End(OutcomeOf(result), result);
  Quietly([&] { after(event); });
  return result;
}

constexpr auto kNothing = [](Event&) {};

// A handle that NCCL fills in at the end of a group has no number yet: the call counts, and ends unseen.
void EnterHandle(Event& event, What what, const void* handle, size_t bytes) {
  const int device = RealDriver::Get().CurrentDevice();
  if (!event.done() || handle != nullptr) {
    return EnterMade(event, what, reinterpret_cast<uint64_t>(handle), bytes, device);
  }
  Audit::Get().ledger.Count(RowOf(what, device), static_cast<int64_t>(bytes), event.nanoseconds);
}

auto Taking(What what, const void* handle) {
  return [what, handle](Event& event) { TakeEnded(event, what, reinterpret_cast<uint64_t>(handle)); };
}

}  // namespace

ncclResult_t AuditedMemAlloc(void** pointer, size_t bytes) {
  const auto after = [&](Event& event) {
    EnterHandle(event, What::kNcclMemory, event.done() ? *pointer : nullptr, bytes);
  };
  return Call("ncclMemAlloc", kNothing, after, pointer, bytes);
}

ncclResult_t AuditedMemFree(void* pointer) {
  return Call("ncclMemFree", Taking(What::kNcclMemory, pointer), &EnterEnded, pointer);
}

}  // namespace commpool::audit

using namespace commpool::audit;  // NOLINT: C on the outside

#define COMMPOOL_EXPORTED extern "C" __attribute__((visibility("default")))

COMMPOOL_EXPORTED ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  const std::optional<ncclResult_t> pooled = commpool::run::AllocateFromPools(pointer, bytes);
  return pooled ? *pooled : AuditedMemAlloc(pointer, bytes);
}

COMMPOOL_EXPORTED ncclResult_t ncclMemFree(void* pointer) {
  const std::optional<ncclResult_t> pooled = commpool::run::FreeToPools(pointer);
  return pooled ? *pooled : AuditedMemFree(pointer);
}

COMMPOOL_EXPORTED ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* buffer, size_t bytes,
                                                void** handle) {
  const auto after = [&](Event& event) {
    EnterHandle(event, What::kRegistration, event.done() ? *handle : nullptr, bytes);
  };
  return Call("ncclCommRegister", kNothing, after, communicator, buffer, bytes, handle);
}

COMMPOOL_EXPORTED ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  return Call("ncclCommDeregister", Taking(What::kRegistration, handle), &EnterEnded, communicator, handle);
}

COMMPOOL_EXPORTED ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void* buffer, size_t bytes,
                                                      ncclWindow_t* window, int flags) {
  const auto after = [&](Event& event) { EnterHandle(event, What::kWindow, event.done() ? *window : nullptr, bytes); };
  return Call("ncclCommWindowRegister", kNothing, after, communicator, buffer, bytes, window, flags);
}

COMMPOOL_EXPORTED ncclResult_t ncclCommWindowDeregister(ncclComm_t communicator, ncclWindow_t window) {
  return Call("ncclCommWindowDeregister", Taking(What::kWindow, window), &EnterEnded, communicator, window);
}
