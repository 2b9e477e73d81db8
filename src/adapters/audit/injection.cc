// Where the library comes in: the loader starts it, and cuInit calls InitializeInjection of the library that
// CUDA_INJECTION64_PATH names.
#include "src/adapters/audit/audit.h"
#include "src/adapters/audit/cupti.h"

namespace {

// A process that never meets a driver says so at its end.
__attribute__((constructor)) void Begin() { commpool::audit::Audit::Get(); }

}  // namespace

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
