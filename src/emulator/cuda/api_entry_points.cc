// cuGetProcAddress, and stubs for functions that the emulator lacks: a stub aborts and names its function.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "src/emulator/cuda/api.h"

namespace commpool::internal::emulator {

namespace {

struct EntryPoint {
  const char* name;
  void* function;
  int version;
};

const EntryPoint kEntryPoints[] = {
#define COMMPOOL_EMULATED(name, version) {#name, reinterpret_cast<void*>(&::name), version},
#include "src/emulator/cuda/functions.inc"
#undef COMMPOOL_EMULATED
};

constexpr const char* kMissingNames[] = {
#define COMMPOOL_MISSING(name) #name,
#include "src/emulator/cuda/missing_functions.inc"
#undef COMMPOOL_MISSING
};

// One stub for each missing function, so that each knows its name.
template <size_t Index>
void Missing() {
  std::fprintf(stderr, "commpool emulator: %s is not implemented\n", kMissingNames[Index]);
  std::abort();
}

template <size_t... Indexes>
constexpr std::array<void (*)(), sizeof...(Indexes)> MakeStubs(std::index_sequence<Indexes...>) {
  return {&Missing<Indexes>...};
}

void* StubFor(const char* name) {
  static constexpr auto stubs = MakeStubs(std::make_index_sequence<std::size(kMissingNames)>());
  for (size_t index = 0; index < stubs.size(); ++index) {
    if (std::strcmp(kMissingNames[index], name) == 0) return reinterpret_cast<void*>(stubs[index]);
  }
  return nullptr;
}

}  // namespace

void* FindFunction(const char* name, int version) {
  for (const EntryPoint& entry : kEntryPoints) {
    if (std::strcmp(entry.name, name) == 0) return entry.version <= version ? entry.function : nullptr;
  }
  return StubFor(name);
}

}  // namespace commpool::internal::emulator

using namespace commpool::internal::emulator;  // NOLINT: C on the outside

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* found) {
  return Call("cuGetProcAddress", Needs::kNothing, [&](Machine&, auto&) {
    if (name == nullptr || function == nullptr || version > kDriverVersion) return CUDA_ERROR_INVALID_VALUE;
    *function = FindFunction(name, version);
    if (found != nullptr) {
      *found = *function != nullptr                            ? CU_GET_PROC_ADDRESS_SUCCESS
               : FindFunction(name, kDriverVersion) != nullptr ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS;  // no function is an answer too
  });
}
