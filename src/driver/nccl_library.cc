#include "src/driver/nccl_library.h"

namespace commpool::internal {

namespace {

std::string WhyMissing(const NcclLibrary& library, const std::string& what, const std::string& first_version) {
  if (!library.available()) return what + " need NCCL, and there is none: " + library.why_missing;
  return what + " need NCCL " + first_version + "; " + library.path + " is " + FormatNcclVersion(library.version);
}

}  // namespace

std::string NcclLibrary::WhyNoLocalRegistration() const {
  return has_local_registration() ? "" : WhyMissing(*this, "local registrations", "2.19");
}

std::string NcclLibrary::WhyNoWindows() const { return has_windows() ? "" : WhyMissing(*this, "windows", "2.27"); }

std::string NcclLibrary::WhyNoSleep() const {
  return has_sleep() ? "" : WhyMissing(*this, "communicators that sleep", "2.29.7");
}

NcclLibrary ResolveNccl(const SharedLibrary& library) {
  NcclLibrary nccl;
#define COMMPOOL_NCCL(name, version) nccl.name = reinterpret_cast<decltype(nccl.name)>(library.Symbol(#name));
#include "src/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  nccl.path = library.file();
  if (nccl.ncclGetVersion == nullptr || nccl.ncclGetVersion(&nccl.version) != ncclSuccess) {
    nccl = NcclLibrary();
    nccl.why_missing = library.file() + " does not answer ncclGetVersion";
    return nccl;
  }
  // The emulator has every symbol, whichever release it imitates.
#define COMMPOOL_NCCL(name, first) \
  if (nccl.version < first) nccl.name = nullptr;
#include "src/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  return nccl;
}

std::string FormatNcclVersion(int version) {
  // From 2.9 on the code is major * 10000 + minor * 100 + patch; before, the major version counted 1000.
  const int major_unit = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace commpool::internal
