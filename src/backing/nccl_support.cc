#include "src/backing/nccl_support.h"

namespace commpool::internal {

Status CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_local_registration()) return Status(StatusCode::kNotSupported, nccl.WhyNoLocalRegistration());
  if (memory != MemoryKind::kHostVirtual) return Status();
  return Status(StatusCode::kNotSupported,
                "NCCL's collectives use no registered host memory: 2.28 takes it and does not use it, 2.30 skips it");
}

Status CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_windows()) return Status(StatusCode::kNotSupported, nccl.WhyNoWindows());
  switch (memory) {
    case MemoryKind::kVirtual:
      return Status();
    case MemoryKind::kHostVirtual:
      if (nccl.has_host_windows()) return Status();
      return Status(StatusCode::kNotSupported,
                    "windows over host memory need NCCL 2.30.3: this is " + FormatNcclVersion(nccl.version));
    case MemoryKind::kUnshareable:
      return Status(StatusCode::kNotSupported,
                    "the device makes no shareable handles, and other ranks import a window's handle");
    case MemoryKind::kLinear:
      return Status(
          StatusCode::kNotSupported,
          "cudaMalloc memory has no handle that another rank could import: windows need the vmm or the nccl backing");
    case MemoryKind::kForeign:
      return Status(
          StatusCode::kNotSupported,
          "a window needs one cuMemCreate handle a segment, which a user's functions do not promise: windows need the "
          "vmm or the nccl backing");
  }
  return Status(StatusCode::kNotSupported, "unknown memory");
}

}  // namespace commpool::internal
