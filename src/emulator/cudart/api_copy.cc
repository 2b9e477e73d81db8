// Copies and memsets.
#include "src/emulator/cudart/mute.h"
#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// The driver tells the direction of a copy by its addresses. It checks the direction that the program names.
CUresult Copy(const DriverFunctions& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver.cuMemcpyHtoD(Address(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return driver.cuMemcpyDtoH(to, Address(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return driver.cuMemcpyDtoD(Address(to), Address(from), bytes);
    default:
      return driver.cuMemcpy(Address(to), Address(from), bytes);
  }
}

CUresult CopyAsync(const DriverFunctions& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                   CUstream stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver.cuMemcpyHtoDAsync(Address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return driver.cuMemcpyDtoHAsync(to, Address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return driver.cuMemcpyDtoDAsync(Address(to), Address(from), bytes, stream);
    default:
      return driver.cuMemcpyAsync(Address(to), Address(from), bytes, stream);
  }
}

bool IsToHost(const DriverFunctions& driver, const void* to, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDefault) return kind == cudaMemcpyDeviceToHost;
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(to));
  return type == CU_MEMORYTYPE_HOST;
}

// A muted copy is a part of what the operation's CPU kernel does. But the host that asks for a result would see what
// nobody has computed: the operation runs at once, and inside of a capture it gets the GPU's error.
CUresult Mute(const DriverFunctions& driver, const void* to, cudaMemcpyKind kind, CUstream stream) {
  if (!IsToHost(driver, to, kind)) {
    NoteMuted();
    return CUDA_SUCCESS;
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuStreamIsCapturing(stream, &status);
  if (result != CUDA_SUCCESS) return result;
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return driver.cuStreamSynchronize(stream);
  NoteMustRunAtOnce();
  return CUDA_ERROR_NOT_READY;
}

bool IsKind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) {
    return IsMuted() ? Mute(driver, to, kind, nullptr) : Copy(driver, to, from, bytes, kind);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) {
    return IsMuted() ? Mute(driver, to, kind, stream) : CopyAsync(driver, to, from, bytes, kind, stream);
  });
}

// Copies row by row, or all at once if there are no gaps between the rows.
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) {
    if (IsMuted()) return ErrorOf(Mute(driver, to, kind, stream));
    if (height > 1 && (width > to_pitch || width > from_pitch)) return cudaErrorInvalidPitchValue;
    if (to_pitch == width && from_pitch == width) {
      return ErrorOf(CopyAsync(driver, to, from, width * height, kind, stream));
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t row = 0; row < height && result == CUDA_SUCCESS; ++row) {
      result = CopyAsync(driver, static_cast<char*>(to) + row * to_pitch,
                         static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    }
    return ErrorOf(result);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) {
    if (IsMuted()) return ErrorOf(Mute(driver, to, cudaMemcpyDeviceToDevice, stream));
    CUcontext to_context = nullptr;
    CUcontext from_context = nullptr;
    cudaError_t error = PrimaryContext(to_device, &to_context);
    if (error == cudaSuccess) error = PrimaryContext(from_device, &from_context);
    if (error != cudaSuccess) return error;
    return ErrorOf(driver.cuMemcpyPeerAsync(Address(to), to_context, Address(from), from_context, bytes, stream));
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return InContext([&](const DriverFunctions& driver) {
    if (IsMuted()) return Mute(driver, to, cudaMemcpyDeviceToDevice, nullptr);
    return driver.cuMemsetD8(Address(to), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) {
    if (IsMuted()) return Mute(driver, to, cudaMemcpyDeviceToDevice, stream);
    return driver.cuMemsetD8Async(Address(to), static_cast<unsigned char>(value), bytes, stream);
  });
}
