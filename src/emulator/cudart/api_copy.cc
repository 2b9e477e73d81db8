// Copies and memsets.
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

bool IsKind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) { return Copy(driver, to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) { return CopyAsync(driver, to, from, bytes, kind, stream); });
}

// Copies row by row, or all at once if there are no gaps between the rows.
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!IsKind(kind)) return Keep(cudaErrorInvalidMemcpyDirection);
  return InContext([&](const DriverFunctions& driver) {
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
    return driver.cuMemsetD8(Address(to), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuMemsetD8Async(Address(to), static_cast<unsigned char>(value), bytes, stream);
  });
}
