// One GPU, current on the thread that made it, and a stream on it: what your program has already.
#ifndef COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_
#define COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_

#include <cuda.h>

#include <string>
#include <vector>

#include "commpool/buffer.h"

namespace examples {

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
  CUcontext context_ = nullptr;
};

// Throws where a call failed.
void Check(CUresult result);

inline CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// Copies on the stream: cuMemcpyHtoD from ordinary memory may return before the copy ends, and only the legacy default
// stream would wait for it.
void Upload(const std::vector<float>& values, const commpool::Buffer& buffer, CUstream stream);

// What a buffer of floats holds once the stream's work is done.
std::vector<float> Download(const commpool::Buffer& buffer, CUstream stream);

// "driver: CUDA driver 13.0, 4 devices, NCCL 2.28.9", once a pool has been made.
std::string DriverLine();

}  // namespace examples

#endif  // COMMPOOL_EXAMPLES_SUPPORT_DEVICE_H_
