// Copies and memsets.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/emulator/cuda/api.h"

using namespace commpool::emulator;  // NOLINT: this file is C on the outside

namespace {

enum class Return { kAtOnce, kWhenDone };

// One end of a copy: device memory by address, or the program's own host memory.
struct End {
  CUdeviceptr device = 0;
  void* host = nullptr;
};

// Device memory that the emulator knows; anything else is the host's.
bool IsKnown(Machine& machine, CUdeviceptr address) { return machine.addresses.Find(address) != nullptr; }

End EndAt(Machine& machine, CUdeviceptr address) {
  return IsKnown(machine, address) ? End{address, nullptr} : End{0, reinterpret_cast<void*>(address)};
}

// The copy engine reaches memory of the stream's device, and of another device through that device itself.
CUresult CheckEnd(Machine& machine, const End& end, size_t bytes, int device) {
  if (end.host != nullptr) return CUDA_SUCCESS;
  const std::vector<MappedRange*> covering = machine.addresses.Covering(end.device, bytes);
  if (covering.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const MappedRange* mapping : covering) {
    const BankLocation owner = mapping->physical->bank->location();
    const bool through_owner = owner.kind == BankLocation::Kind::kDevice && machine.MayAccess(*mapping, owner.id);
    if (!machine.MayAccess(*mapping, device) && !through_owner) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Submit(Machine& machine, std::unique_lock<std::mutex>& lock, CUstream handle,
                std::shared_ptr<Operation> operation, Return when) {
  CUstream_st* const stream = machine.scheduler.Resolve(handle, CurrentDevice());
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int device = stream->device;
  machine.scheduler.Submit(stream, std::move(operation));
  if (when == Return::kWhenDone) machine.scheduler.WaitForStream(lock, stream);
  return machine.contexts[static_cast<size_t>(device)]->sticky;
}

CUresult Copy(const char* call, End to, End from, size_t bytes, CUstream stream, Return when) {
  return Call(call, Needs::kCurrentContext, [&](Machine& machine, auto& lock) {
    if (bytes == 0) return CUDA_SUCCESS;
    if ((to.device == 0 && to.host == nullptr) || (from.device == 0 && from.host == nullptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (const End& end : {to, from}) {
      const CUresult result = CheckEnd(machine, end, bytes, CurrentDevice());
      if (result != CUDA_SUCCESS) return result;
    }
    auto operation = std::make_shared<Operation>();
    operation->name = call;
    operation->duration_us = CopyDuration(bytes);
    // Ends are resolved now: unlike a kernel's, a copy's right of way does not depend on the stream's device.
    char* const destination =
        to.host != nullptr ? static_cast<char*>(to.host) : machine.addresses.HostPointer(to.device);
    if (from.host != nullptr) {
      // Pageable host memory is the program's again when the call returns.
      auto staged =
          std::make_shared<std::vector<char>>(static_cast<char*>(from.host), static_cast<char*>(from.host) + bytes);
      operation->run = [=](const Pointers&, const Pointers&) { std::memcpy(destination, staged->data(), bytes); };
    } else {
      const char* const source = machine.addresses.HostPointer(from.device);
      operation->run = [=](const Pointers&, const Pointers&) { std::memmove(destination, source, bytes); };
    }
    // Declared for "in use" checks only where the stream's device itself has access: kernels are held to that, copies
    // not.
    const auto declare = [&](const End& end, std::vector<commpoolEmulatorRange>& ranges) {
      const commpoolEmulatorRange range{end.device, bytes};
      if (end.host == nullptr && machine.CheckAccess(range, CurrentDevice()) == CUDA_SUCCESS) ranges.push_back(range);
    };
    declare(from, operation->reads);
    declare(to, operation->writes);
    const bool pageable_target = to.host != nullptr;  // the driver waits: it could not tell when it may be read
    return Submit(machine, lock, stream, std::move(operation), pageable_target ? Return::kWhenDone : when);
  });
}

template <typename Element>
CUresult Fill(const char* call, CUdeviceptr address, Element value, size_t count, CUstream stream, Return when) {
  return Call(call, Needs::kCurrentContext, [&](Machine& machine, auto& lock) {
    if (count == 0) return CUDA_SUCCESS;
    if (address % sizeof(Element) != 0 || count > SIZE_MAX / sizeof(Element)) return CUDA_ERROR_INVALID_VALUE;
    const commpoolEmulatorRange range{address, count * sizeof(Element)};
    if (machine.CheckAccess(range, CurrentDevice()) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    auto operation = std::make_shared<Operation>();
    operation->name = call;
    operation->duration_us = CopyDuration(range.bytes);
    operation->writes.push_back(range);
    operation->run = [=](const Pointers&, const Pointers& writes) {
      std::fill_n(static_cast<Element*>(writes[0]), count, value);
    };
    return Submit(machine, lock, stream, std::move(operation), when);
  });
}

End Device(CUdeviceptr address) { return {address, nullptr}; }

// A host pointer that the driver made itself is known by its address.
End Host(const void* pointer) {
  Machine& machine = Machine::Get();
  const std::unique_lock<std::mutex> lock(machine.mutex);
  return EndAt(machine, reinterpret_cast<CUdeviceptr>(pointer));
}

End Either(CUdeviceptr address) { return Host(reinterpret_cast<const void*>(address)); }

}  // namespace

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy("cuMemcpy", Either(to), Either(from), bytes, nullptr, Return::kWhenDone);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyAsync", Either(to), Either(from), bytes, stream, Return::kAtOnce);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return Copy("cuMemcpyHtoD", Device(to), Host(from), bytes, nullptr, Return::kWhenDone);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyHtoDAsync", Device(to), Host(from), bytes, stream, Return::kAtOnce);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return Copy("cuMemcpyDtoH", Host(to), Device(from), bytes, nullptr, Return::kWhenDone);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyDtoHAsync", Host(to), Device(from), bytes, stream, Return::kAtOnce);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy("cuMemcpyDtoD", Device(to), Device(from), bytes, nullptr, Return::kWhenDone);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyDtoDAsync", Device(to), Device(from), bytes, stream, Return::kAtOnce);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return Copy("cuMemcpyPeer", Device(to), Device(from), bytes, nullptr, Return::kWhenDone);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyPeerAsync", Device(to), Device(from), bytes, stream, Return::kAtOnce);
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
  return Fill("cuMemsetD8", address, value, count, nullptr, Return::kWhenDone);
}
CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, size_t count) {
  return Fill("cuMemsetD16", address, value, count, nullptr, Return::kWhenDone);
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned int value, size_t count) {
  return Fill("cuMemsetD32", address, value, count, nullptr, Return::kWhenDone);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return Fill("cuMemsetD8Async", address, value, count, stream, Return::kAtOnce);
}
CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
  return Fill("cuMemsetD16Async", address, value, count, stream, Return::kAtOnce);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) {
  return Fill("cuMemsetD32Async", address, value, count, stream, Return::kAtOnce);
}
