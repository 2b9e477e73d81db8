#include "src/interpose/audit/watched.h"

#include <nccl.h>

#include <cstring>

#include "src/interpose/audit/array_accounts.h"
#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/graph_accounts.h"
#include "src/interpose/audit/nccl_functions.h"
#include "src/interpose/audit/older_functions.h"
#include "src/interpose/audit/packed_call.h"
#include "src/interpose/audit/real_driver.h"
#include "src/interpose/preload/symbols.h"
#include "src/interpose/room/ask.h"

namespace commpool::audit {

namespace {

Watched kWatched[] = {
#define COMMPOOL_AUDITED(symbol, name, since, account, parameters, arguments) \
  {#symbol,                                                                   \
   #name,                                                                     \
   since,                                                                     \
   reinterpret_cast<void*>(&::symbol),                                        \
   &PackedCall<account, decltype(&::symbol)>::Before,                         \
   &PackedCall<account, decltype(&::symbol)>::After},
#include "src/interpose/audit/audited_functions.inc"
#undef COMMPOOL_AUDITED
#define COMMPOOL_AUDITED_NCCL(name) {#name, nullptr, 0, reinterpret_cast<void*>(&::name)},
    {"ncclMemAlloc", nullptr, 0, reinterpret_cast<void*>(&AuditedMemAlloc)},
    {"ncclMemFree", nullptr, 0, reinterpret_cast<void*>(&AuditedMemFree)},
    COMMPOOL_AUDITED_NCCL(ncclCommRegister) COMMPOOL_AUDITED_NCCL(ncclCommDeregister)
        COMMPOOL_AUDITED_NCCL(ncclCommWindowRegister) COMMPOOL_AUDITED_NCCL(ncclCommWindowDeregister)
#undef COMMPOOL_AUDITED_NCCL
#define COMMPOOL_LAUNCH(symbol, name, since, parameters, arguments, stream) \
  {#symbol, #name, since, reinterpret_cast<void*>(&::symbol)},
#include "src/interpose/audit/launches.inc"
#undef COMMPOOL_LAUNCH
#define COMMPOOL_UNBOOKED(symbol, name, since, parameters, arguments) \
  {#symbol, #name, since, reinterpret_cast<void*>(&::symbol)},
#include "src/interpose/audit/unbooked_functions.inc"
#undef COMMPOOL_UNBOOKED
            {"cuGetProcAddress_v2", nullptr, 0, reinterpret_cast<void*>(&::cuGetProcAddress_v2)},
    {"cuGetProcAddress", nullptr, 0, EarlierGetProcAddress()},
};

}  // namespace

CUresult MakeAgain(const Watched& watched, int device, const std::function<CUresult()>& make) {
  return run::MakeAgain(watched.symbol, device == kCurrentDevice ? RealDriver::Get().CurrentDevice() : device, make);
}

std::span<Watched> AllWatched() { return kWatched; }

Watched* FindWatched(const char* symbol) {
  if (std::strncmp(symbol, "cu", 2) != 0 && std::strncmp(symbol, "nccl", 4) != 0) return nullptr;
  for (Watched& watched : kWatched) {
    if (std::strcmp(watched.symbol, symbol) == 0) return &watched;
  }
  return nullptr;
}

void* RealOf(Watched& watched) {
  void* real = watched.real.load(std::memory_order_acquire);
  if (real != nullptr) return real;
  real = preload::FindDefinition(watched.symbol);
  watched.real.store(real, std::memory_order_release);
  return real;
}

void* InPlaceOf(Watched& watched, void* found) {
  if (found == nullptr || preload::IsOurs(found)) return found;
  LoadedObjects& objects = Audit::Get().objects;
  void* const present = watched.real.load(std::memory_order_acquire);
  if (present != nullptr && objects.At(present).begin != objects.At(found).begin) {
    if (Audit::Get().initialised()) return found;
    watched.real.store(found, std::memory_order_release);
  }
  void* none = nullptr;
  watched.real.compare_exchange_strong(none, found);
  return watched.ours;
}

}  // namespace commpool::audit
