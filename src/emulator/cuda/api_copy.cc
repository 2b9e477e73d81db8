// Copies and memsets.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

// CUDA's documentation of synchronisation gives this limit for pageable copies to the device.
constexpr size_t kStagedBytes = 64 << 10;

enum class Return { kAtOnce, kWhenDone };

// One end of a copy: device memory by address, or the program's own host memory.
struct End {
  CUdeviceptr device = 0;
  void* host = nullptr;
};

// Device memory that the emulator knows; every other address belongs to the host.
bool IsKnown(Machine& machine, CUdeviceptr address) { return machine.addresses.Find(address) != nullptr; }

End EndAt(Machine& machine, CUdeviceptr address) {
  return IsKnown(machine, address) ? End{address, nullptr} : End{0, reinterpret_cast<void*>(address)};
}

CUresult Submit(Machine& machine, std::unique_lock<std::mutex>& lock, CUstream_st* stream,
                std::shared_ptr<Operation> operation, Return when) {
  const int device = stream->device;
  const CUresult result = machine.Submit(stream, std::move(operation));
  if (result != CUDA_SUCCESS || machine.captures.Of(stream) != nullptr) return result;
  if (when == Return::kAtOnce) return CUDA_SUCCESS;
  machine.scheduler.WaitForStream(lock, stream);
  return machine.contexts[static_cast<size_t>(device)]->sticky;
}

// Looks up device memory when the copy runs: the program may have freed it before.
std::function<void(const Pointers&, const Pointers&)> Move(const End& to, const End& from, size_t bytes, bool staged) {
  if (staged) {
    const auto* const start = static_cast<const char*>(from.host);
    auto content = std::make_shared<std::vector<char>>(start, start + bytes);
    return [=](const Pointers&, const Pointers& writes) {
      std::memcpy(writes.empty() ? to.host : writes[0], content->data(), bytes);
    };
  }
  return [=](const Pointers& reads, const Pointers& writes) {
    std::memmove(writes.empty() ? to.host : writes[0], reads.empty() ? from.host : reads[0], bytes);
  };
}

// Without arithmetic device memory has no content. The host sees zeros.
std::function<void(const Pointers&, const Pointers&)> Clear(const End& to, size_t bytes) {
  return [=](const Pointers&, const Pointers&) {
    if (to.host != nullptr) std::memset(to.host, 0, bytes);
  };
}

CUresult Copy(const char* call, End to, End from, size_t bytes, CUstream handle, Return when,
              std::vector<int> more_devices = {}) {
  return CallOnStream(call, handle, [&](Machine& machine, auto& lock, CUstream_st* stream) {
    if (bytes == 0) return CUDA_SUCCESS;
    auto operation = std::make_shared<Operation>();
    operation->name = call;
    operation->duration_us = CopyDuration(bytes);
    operation->copy_devices = more_devices;
    operation->copy_devices.push_back(stream->device);
    for (const End* end : {&to, &from}) {
      if (end->device == 0 && end->host == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (end->host != nullptr) continue;
      const commpoolEmulatorRange range{end->device, bytes};
      const auto use = end == &to ? Machine::Use::kWrite : Machine::Use::kRead;
      if (machine.CheckAccess(use, range, stream->device, operation->copy_devices) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      (end == &to ? operation->writes : operation->reads).push_back(range);
    }
    // The program may change pageable memory as soon as the call returns, so the driver copies it elsewhere first. The
    // transfer to the device may still run then, and no stream orders it. An asynchronous call copies small blocks, and
    // waits for large ones. A captured copy reads the memory again at each replay.
    const bool captured = machine.captures.Of(stream) != nullptr;
    const bool pageable = from.host != nullptr && to.host == nullptr && !captured;
    const bool staged = pageable && (bytes <= kStagedBytes || when == Return::kWhenDone);
    const bool waits = !staged && (to.host != nullptr || from.host != nullptr || when == Return::kWhenDone);
    operation->run = machine.description.computes() ? Move(to, from, bytes, staged) : Clear(to, bytes);
    return Submit(machine, lock, stream, std::move(operation), waits ? Return::kWhenDone : Return::kAtOnce);
  });
}

template <typename Element>
CUresult Fill(const char* call, CUdeviceptr address, Element value, size_t count, CUstream handle) {
  return CallOnStream(call, handle, [&](Machine& machine, auto& lock, CUstream_st* stream) {
    if (count == 0) return CUDA_SUCCESS;
    if (address % sizeof(Element) != 0 || count > SIZE_MAX / sizeof(Element)) return CUDA_ERROR_INVALID_VALUE;
    const commpoolEmulatorRange range{address, count * sizeof(Element)};
    if (machine.CheckAccess(Machine::Use::kWrite, range, stream->device) != CUDA_SUCCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto operation = std::make_shared<Operation>();
    operation->name = call;
    operation->duration_us = CopyDuration(range.bytes);
    operation->writes.push_back(range);
    if (machine.description.computes()) {
      operation->run = [=](const Pointers&, const Pointers& writes) {
        std::fill_n(static_cast<Element*>(writes[0]), count, value);
      };
    }
    return Submit(machine, lock, stream, std::move(operation), Return::kAtOnce);
  });
}

// Works on whole words, as a write of a value does.
CUresult WriteWord(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  constexpr unsigned kFlags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  return Fill("cuStreamWriteValue32", address, value, 1, stream);
}

// Returns the devices of the two contexts of a peer copy.
std::vector<int> DevicesOf(CUcontext to, CUcontext from) {
  std::vector<int> devices;
  for (CUcontext context : {to, from}) {
    if (context != nullptr) devices.push_back(context->device);
  }
  return devices;
}

End Device(CUdeviceptr address) { return {address, nullptr}; }

// Recognises by its address a host pointer that the driver made.
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
  return Copy("cuMemcpyDtoD", Device(to), Device(from), bytes, nullptr, Return::kAtOnce);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyDtoDAsync", Device(to), Device(from), bytes, stream, Return::kAtOnce);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
  return Copy("cuMemcpyPeer", Device(to), Device(from), bytes, nullptr, Return::kAtOnce,
              DevicesOf(to_context, from_context));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream) {
  return Copy("cuMemcpyPeerAsync", Device(to), Device(from), bytes, stream, Return::kAtOnce,
              DevicesOf(to_context, from_context));
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
  return Fill("cuMemsetD8", address, value, count, nullptr);
}
CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, size_t count) {
  return Fill("cuMemsetD16", address, value, count, nullptr);
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned int value, size_t count) {
  return Fill("cuMemsetD32", address, value, count, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return Fill("cuMemsetD8Async", address, value, count, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
  return Fill("cuMemsetD16Async", address, value, count, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) {
  return Fill("cuMemsetD32Async", address, value, count, stream);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return WriteWord(stream, address, value, flags);
}
