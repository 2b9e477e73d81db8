// cuGetProcAddress and cuGetExportTable.
#include <cstring>

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

}  // namespace

void* FindFunction(const char* name, int version) {
  for (const EntryPoint& entry : kEntryPoints) {
    if (std::strcmp(entry.name, name) == 0) return entry.version <= version ? entry.function : nullptr;
  }
  return nullptr;
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
    return CUDA_SUCCESS;  // "not found" is an answer, not an error
  });
}

// NVIDIA's own libraries know tables by number, such as the profiler's. The emulator has none, and answers as for an
// unknown number. CUPTI asks one table for the name of each error, also of the error that there is no such table: it
// gets an empty table, of which it takes nothing. So it tells its callers that it cannot profile.
CUresult cuGetExportTable(const void** table, const CUuuid* number) {
  return Call("cuGetExportTable", Needs::kNothing, [&](Machine&, auto&) {
    static constexpr char kNamesOfErrors[] = "\x7c\xb6\x3f\x9b\x9c\xa4\x8e\x42\xa4\x84\xbe\xb6\x6e\x6a\xed\x7f";
    static constexpr size_t kEmptyTable = sizeof(size_t);  // a table begins with its size
    if (table == nullptr || number == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool known = std::memcmp(number->bytes, kNamesOfErrors, sizeof(number->bytes)) == 0;
    *table = known ? &kEmptyTable : nullptr;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
