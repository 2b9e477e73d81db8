// The launches of kernels as a program sees them while it is audited. The driver loads a kernel's code, and makes room
// for its stack, when it is first launched: that launch is measured. All others go through after a look of some
// nanoseconds. They are preloaded always: CUPTI would take a hundred times as long for each.
#include <cuda.h>

#include "src/interpose/audit/accounts.h"
#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/older_functions.h"
#include "src/interpose/audit/real_driver.h"
#include "src/interpose/audit/seen_set.h"
#include "src/interpose/audit/watched.h"

namespace commpool::audit {

namespace {

SeenSet& Launched() {
  static auto* const launched = new SeenSet();
  return *launched;
}

// A launch that is captured runs later, and is measured if it is launched outside of captures too.
template <typename... Arguments>
CUresult LaunchFirst(Watched& watched, CUfunction function, CUstream stream, Arguments... arguments) {
  const auto real = reinterpret_cast<CUresult (*)(Arguments...)>(RealOf(watched));
  if (!Audit::Get().settings.asked || RealDriver::Get().IsCapturing(stream).value_or(true)) return real(arguments...);
  Launched().Add(function);
  Event event(watched.symbol);
  Quietly([&] { MeasureBefore(event, kNoDevice); });
  event.Start();
  const CUresult result = real(arguments...);
  event.End(result == CUDA_SUCCESS ? Outcome::kDone : Outcome::kFailed, result);
  Quietly([&] { MeasureAfter(event, What::kCode); });
  return result;
}

template <typename... Arguments>
CUresult Launch(Watched& watched, CUfunction function, CUstream stream, Arguments... arguments) {
  const auto real = reinterpret_cast<CUresult (*)(Arguments...)>(RealOf(watched));
  if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  const auto make = [&] {
    return Launched().Has(function) ? real(arguments...) : LaunchFirst(watched, function, stream, arguments...);
  };
  const CUresult result = make();
  return result == CUDA_ERROR_OUT_OF_MEMORY ? MakeAgain(watched, kCurrentDevice, make) : result;
}

}  // namespace

}  // namespace commpool::audit

#define COMMPOOL_EXPAND(...) __VA_ARGS__
#define COMMPOOL_LAUNCH(symbol, name, since, parameter_list, arguments, stream)           \
  extern "C" __attribute__((visibility("default"))) CUresult symbol parameter_list {      \
    static commpool::audit::Watched& watched = *commpool::audit::FindWatched(#symbol);    \
    return commpool::audit::Launch(watched, function, stream, COMMPOOL_EXPAND arguments); \
  }
#include "src/interpose/audit/launches.inc"
#undef COMMPOOL_LAUNCH
