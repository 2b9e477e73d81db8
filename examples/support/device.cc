#include "examples/support/device.h"

#include <stdexcept>
#include <string>

#include "commpool/status.h"
#include "examples/support/driver.h"
#include "src/driver/device_info.h"

namespace examples {

Device::Device(int device_number) : number(device_number) {
  const internal::Driver& driver = TheDriver();
  const int devices = internal::DeviceCount(driver).value();
  if (number >= devices) {
    throw std::runtime_error("device " + std::to_string(number) + " was asked for and there are " +
                             std::to_string(devices) + ": start one rank a GPU");
  }
  context_ = internal::PrimaryContext::Retain(driver, number).value();
  MakeCurrent();
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

Device::~Device() {
  static_cast<void>(commpool::release_stream(stream));
  cuStreamDestroy(stream);
}

void Device::MakeCurrent() const { Check(cuCtxSetCurrent(context_.get())); }

std::vector<float> Download(const commpool::Buffer& buffer, CUstream stream) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  Check(cuStreamSynchronize(stream));
  Check(cuMemcpyDtoH(values.data(), AddressOf(buffer.data()), buffer.bytes()));
  return values;
}

}  // namespace examples
