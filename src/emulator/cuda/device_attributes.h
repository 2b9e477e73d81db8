// What a device says of itself: an H200's figures, and what the description declares. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_DEVICE_ATTRIBUTES_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_DEVICE_ATTRIBUTES_H_

#include <cuda.h>

#include "src/emulator/description.h"

namespace commpool::internal::emulator {

// 0 for what is not emulated.
int AttributeOf(const Description& description, CUdevice_attribute attribute, int device);

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_DEVICE_ATTRIBUTES_H_
