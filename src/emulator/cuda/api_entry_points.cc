// cuGetProcAddress, and what becomes of functions that the emulator has not: they abort with their name when called.
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "src/emulator/cuda/api.h"

namespace commpool::emulator {

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

// One stub for each missing function that was asked for, so that it knows its name when it is called.
constexpr size_t kStubs = 256;
std::array<std::string, kStubs> missing_names;
size_t missing_count = 0;

template <size_t Index>
void Missing() {
  std::fprintf(stderr, "commpool emulator: %s is not implemented\n", missing_names[Index].c_str());
  std::abort();
}

template <size_t... Indexes>
constexpr std::array<void (*)(), sizeof...(Indexes)> MakeStubs(std::index_sequence<Indexes...>) {
  return {&Missing<Indexes>...};
}

void* StubFor(const char* name) {
  static constexpr auto stubs = MakeStubs(std::make_index_sequence<kStubs>());
  for (size_t index = 0; index < missing_count; ++index) {
    if (missing_names[index] == name) return reinterpret_cast<void*>(stubs[index]);
  }
  if (missing_count == kStubs) return nullptr;
  missing_names[missing_count] = name;
  return reinterpret_cast<void*>(stubs[missing_count++]);
}

}  // namespace

void* FindFunction(const char* name, int version) {
  for (const EntryPoint& entry : kEntryPoints) {
    if (std::strcmp(entry.name, name) == 0) return entry.version <= version ? entry.function : nullptr;
  }
  const bool looks_like_one =
      std::strncmp(name, "cu", 2) == 0 && std::isupper(static_cast<unsigned char>(name[2])) != 0;
  return looks_like_one ? StubFor(name) : nullptr;
}

}  // namespace commpool::emulator

using namespace commpool::emulator;  // NOLINT: C on the outside

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* found) {
  return Call("cuGetProcAddress", Needs::kNothing, [&](Machine&, auto&) {
    if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *function = FindFunction(name, version);
    if (found != nullptr) {
      *found = *function != nullptr                     ? CU_GET_PROC_ADDRESS_SUCCESS
               : FindFunction(name, 1 << 30) != nullptr ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}
