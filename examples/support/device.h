// One GPU, current on the thread that made it, with a stream: your program has this already.
#pragma once

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

  // Makes the GPU current. Every thread that uses it calls this first.
  void MakeCurrent() const;

  int number = 0;
  CUstream stream = nullptr;

 private:
  CUcontext context_ = nullptr;
};

// Throws where a call fails.
void Check(CUresult result);

inline CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// Copies on the stream. cuMemcpyHtoD from ordinary memory may return before the copy ends, and only the legacy default
// stream would wait for it.
void Upload(const std::vector<float>& values, const commpool::Buffer& buffer, CUstream stream);

// The contents of a buffer of floats once the stream's work is done.
std::vector<float> Download(const commpool::Buffer& buffer, CUstream stream);

// Such as "driver: CUDA driver 13.0, 4 devices, NCCL 2.28.9"; call it after a pool was made.
std::string DriverLine();

}  // namespace examples
