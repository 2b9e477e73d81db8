// One GPU, current on the thread that made it, and a stream on it.
#ifndef COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_
#define COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_

#include <cuda.h>

#include <vector>

#include "commpool/buffer.h"
#include "src/driver/handles.h"

namespace examples {

namespace internal = commpool::internal;

class Device {
 public:
  explicit Device(int device_number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // On the calling thread: what every thread that uses the GPU does first.
  void MakeCurrent() const;

  int number = 0;
  CUstream stream = nullptr;

 private:
  internal::PrimaryContext context_;
};

inline CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// What a buffer of floats holds once the stream's work is done.
std::vector<float> Download(const commpool::Buffer& buffer, CUstream stream);

}  // namespace examples

#endif  // COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_
