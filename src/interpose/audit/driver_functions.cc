// The driver's functions as a program sees them under `commpool audit` and `commpool run`: each notes the call and
// makes it, and once more where memory ran out and others gave some back.
#include <cuda.h>

#include <utility>

#include "src/interpose/audit/accounts.h"
#include "src/interpose/audit/array_accounts.h"
#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/graph_accounts.h"
#include "src/interpose/audit/older_functions.h"
#include "src/interpose/audit/watched.h"
#include "src/interpose/room/ask.h"

namespace commpool::audit {

namespace {

enum class Index : size_t {
#define COMMPOOL_AUDITED(symbol, name, since, account, parameters, arguments) k_##symbol,
#include "src/interpose/audit/audited_functions.inc"
#undef COMMPOOL_AUDITED
};

Outcome OutcomeOf(CUresult result) {
  if (result == CUDA_SUCCESS) return Outcome::kDone;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? Outcome::kOutOfMemory : Outcome::kFailed;
}

// Makes the call, and keeps the books of an audit.
template <typename Account, typename... Arguments>
CUresult Make(const Watched& watched, CUresult (*real)(Arguments...), Arguments... arguments) {
  Audit& audit = Audit::Get();
  // With CUPTI the books are kept in its callbacks. cuInit is where it comes in: after that both may not count.
  if (!audit.settings.asked || audit.source() == Source::kCupti) return real(arguments...);
  Event event(watched.symbol);
  Quietly([&] { Account::Before(event, arguments...); });
  event.Start();
  const CUresult result = real(arguments...);
  event.End(OutcomeOf(result), result);
  Quietly([&] { Account::After(event, arguments...); });
  return result;
}

template <typename Account, typename... Arguments>
CUresult Call(Index index, Arguments... arguments) {
  Watched& watched = AllWatched()[static_cast<size_t>(index)];
  const auto real = reinterpret_cast<CUresult (*)(Arguments...)>(RealOf(watched));
  if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  const auto make = [&] { return Make<Account>(watched, real, arguments...); };
  if (!run::IsAsked()) return make();
  Quietly([&] { Account::NoteBefore(arguments...); });
  CUresult result = make();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = MakeAgain(watched, Account::RoomOn(arguments...), make);
  if (result == CUDA_SUCCESS) Quietly([&] { Account::NoteDone(arguments...); });
  return result;
}

// Of functions that no account is for.
template <typename... Arguments>
CUresult CallUnbooked(Watched& watched, Arguments... arguments) {
  const auto real = reinterpret_cast<CUresult (*)(Arguments...)>(RealOf(watched));
  if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  const auto make = [&] { return real(arguments...); };
  const CUresult result = make();
  return result == CUDA_ERROR_OUT_OF_MEMORY ? MakeAgain(watched, kCurrentDevice, make) : result;
}

}  // namespace

}  // namespace commpool::audit

#define COMMPOOL_EXPAND(...) __VA_ARGS__
#define COMMPOOL_AUDITED(symbol, name, since, account, parameters, arguments)                  \
  extern "C" __attribute__((visibility("default"))) CUresult symbol parameters {               \
    return commpool::audit::Call<commpool::audit::account>(commpool::audit::Index::k_##symbol, \
                                                           COMMPOOL_EXPAND arguments);         \
  }
#include "src/interpose/audit/audited_functions.inc"
#undef COMMPOOL_AUDITED
#define COMMPOOL_UNBOOKED(symbol, name, since, parameters, arguments)                  \
  extern "C" __attribute__((visibility("default"))) CUresult symbol parameters {       \
    static commpool::audit::Watched& watched = *commpool::audit::FindWatched(#symbol); \
    return commpool::audit::CallUnbooked(watched, COMMPOOL_EXPAND arguments);          \
  }
#include "src/interpose/audit/unbooked_functions.inc"
#undef COMMPOOL_UNBOOKED
