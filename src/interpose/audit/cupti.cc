// CUPTI's callbacks for the driver's calls, and where the library comes in: the loader starts it, and cuInit calls
// InitializeInjection of the library that CUDA_INJECTION64_PATH names.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/cupti_abi.h"
#include "src/interpose/audit/watched.h"
#include "src/interpose/preload/symbols.h"

namespace commpool::audit {

namespace {

// CUPTI numbers functions in the order of their coming; there are 807 in CUDA 13.0.
constexpr uint32_t kNumbers = 4096;

// The watched function of each number.
using ByNumber = std::array<std::atomic<Watched*>, kNumbers>;
ByNumber& WatchedByNumber() {
  static auto* const numbers = new ByNumber();
  return *numbers;
}

Outcome OutcomeOf(CUresult result) {
  if (result == CUDA_SUCCESS) return Outcome::kDone;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? Outcome::kOutOfMemory : Outcome::kFailed;
}

void OnCall(void*, int domain, uint32_t number, const void* data) {
  if (domain != cupti::kDriverDomain || number >= kNumbers) return;
  Watched* const watched = WatchedByNumber()[number].load(std::memory_order_acquire);
  const auto& call = *static_cast<const cupti::CallbackData*>(data);
  if (watched == nullptr || call.correlation == nullptr) return;
  if (call.site == cupti::kEnter) {
    Quietly([&] {
      auto event = std::make_unique<Event>(watched->symbol);
      *call.correlation = 0;
      Quietly([&] { watched->before(*event, call.parameters); });
      event->Start();
      *call.correlation = reinterpret_cast<uint64_t>(event.release());
    });
    return;
  }
  const std::unique_ptr<Event> event(reinterpret_cast<Event*>(*call.correlation));
  if (event == nullptr) return;
  const CUresult result = *static_cast<const CUresult*>(call.result);
  event->End(OutcomeOf(result), result);
  // cuInit itself may have begun before the callbacks did.
  if (event->done() && !Audit::Get().initialised()) Audit::Get().NoteInitialised("");
  Quietly([&] { watched->after(*event, call.parameters); });
}

void* OpenCupti(const std::string& file) {
  if (!file.empty()) return dlopen(file.c_str(), RTLD_LAZY);
  // Of the version that the program has loaded, else the newest.
  for (const int flags : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}) {
    for (const char* name : {"libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"}) {
      if (void* const library = dlopen(name, flags)) return library;
    }
  }
  return nullptr;
}

// From now on the watched functions' calls come by callbacks. Returns why that cannot be; empty for success. `file` is
// CUPTI's; empty: the one that the process has loaded, as torch brings one, else the system's.
std::string SubscribeToCupti(const std::string& file) {
  void* const library = OpenCupti(file);
  if (library == nullptr) {
    return "there is no " + (file.empty() ? "libcupti.so.13 or libcupti.so.12" : file) + "; --cupti names its file";
  }
  const auto subscribe = reinterpret_cast<cupti::Subscribe>(preload::SystemDlsym(library, "cuptiSubscribe"));
  const auto enable = reinterpret_cast<cupti::EnableCallback>(preload::SystemDlsym(library, "cuptiEnableCallback"));
  const auto name_of = reinterpret_cast<cupti::GetCallbackName>(preload::SystemDlsym(library, "cuptiGetCallbackName"));
  if (subscribe == nullptr || enable == nullptr || name_of == nullptr) return "libcupti.so has no cuptiSubscribe";
  cupti::Subscriber subscriber = nullptr;
  const cupti::Result result = subscribe(&subscriber, &OnCall, nullptr);
  if (result == cupti::kMultipleSubscribers) return "another tool has subscribed to CUPTI, which takes one";
  if (result != cupti::kSuccess) return "cuptiSubscribe failed: " + std::to_string(result);
  size_t enabled = 0;
  for (uint32_t number = 1; number < kNumbers; ++number) {
    const char* name = nullptr;
    if (name_of(cupti::kDriverDomain, number, &name) != cupti::kSuccess || name == nullptr) continue;
    Watched* const watched = FindWatched(name);
    if (watched == nullptr || watched->before == nullptr) continue;
    WatchedByNumber()[number].store(watched, std::memory_order_release);
    if (enable(1, subscriber, cupti::kDriverDomain, number) == cupti::kSuccess) ++enabled;
  }
  return enabled == 0 ? "CUPTI knows none of the driver's functions" : "";
}

// A process that never meets a driver says so at its end.
__attribute__((constructor)) void Begin() { Audit::Get(); }

}  // namespace

}  // namespace commpool::audit

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using commpool::audit::Audit;
  using commpool::audit::Source;
  Audit& audit = Audit::Get();
  if (!audit.settings.asked || !audit.settings.by_cupti) return 1;
  const std::string why = commpool::audit::SubscribeToCupti(audit.settings.cupti);
  audit.SeenBy(why.empty() ? Source::kCupti : Source::kPreload, why);
  return 1;
}

// For programs that want a report at a moment of their own: a step's end.
extern "C" __attribute__((visibility("default"))) void commpool_audit_report(const char* reason) {
  commpool::audit::Audit::Get().Report(reason == nullptr ? "asked for" : reason);
}
