#include "src/backing/nccl_support.h"

namespace commpool::internal {

Capability CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_local_registration()) return Capability::No(nccl.WhyNoLocalRegistration());
  if (memory != MemoryKind::kHostVirtual) return Capability::Yes();
  return Capability::No(
      "NCCL's collectives use no registered host memory: 2.28 takes it and does not use it, 2.30 skips it");
}

Capability CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_windows()) return Capability::No(nccl.WhyNoWindows());
  switch (memory) {
    case MemoryKind::kVirtual:
      return Capability::Yes();
    case MemoryKind::kHostVirtual:
      if (nccl.has_host_windows()) return Capability::Yes();
      return Capability::No("windows over host memory need NCCL 2.30.3: this is " + FormatNcclVersion(nccl.version));
    case MemoryKind::kUnshareable:
      return Capability::No("the device makes no shareable handles, and other ranks import a window's handle");
    case MemoryKind::kLinear:
      return Capability::No(
          "cudaMalloc memory has no handle that another rank could import: windows need the vmm or the nccl backing");
    case MemoryKind::kForeign:
      return Capability::No(
          "a window needs one cuMemCreate handle a segment, which a user's functions do not promise: windows need the "
          "vmm or the nccl backing");
  }
  return Capability::No("unknown memory");
}

}  // namespace commpool::internal
