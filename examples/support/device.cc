#include "examples/support/device.h"

#include <stdexcept>

#include "commpool/runtime.h"

namespace examples {

void Check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string("a CUDA call failed: ") + (name == nullptr ? "unknown error" : name));
}

Device::Device(int device_number) : number(device_number) {
  Check(cuInit(0));
  int devices = 0;
  Check(cuDeviceGetCount(&devices));
  if (number >= devices) {
    throw std::runtime_error("device " + std::to_string(number) + " was asked for and there are " +
                             std::to_string(devices) + ": start one rank a GPU");
  }
  Check(cuDevicePrimaryCtxRetain(&context_, number));
  MakeCurrent();
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

Device::~Device() {
  static_cast<void>(commpool::release_stream(stream));
  cuStreamDestroy(stream);
  cuDevicePrimaryCtxRelease(number);
}

void Device::MakeCurrent() const { Check(cuCtxSetCurrent(context_)); }

void Upload(const std::vector<float>& values, const commpool::Buffer& buffer, CUstream stream) {
  Check(cuMemcpyHtoDAsync(AddressOf(buffer.data()), values.data(), values.size() * sizeof(float), stream));
}

std::vector<float> Download(const commpool::Buffer& buffer, CUstream stream) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  Check(cuStreamSynchronize(stream));
  Check(cuMemcpyDtoH(values.data(), AddressOf(buffer.data()), buffer.bytes()));
  return values;
}

std::string DriverLine() { return "driver: " + commpool::driver_description(); }

}  // namespace examples
