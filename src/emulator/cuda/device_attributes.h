// The attributes of a device: those of an H200, and those that the description declares. Any thread may ask.
#pragma once

#include <cuda.h>

#include "src/emulator/description.h"

namespace commpool::internal::emulator {

// Returns 0 for an attribute that the emulator does not have.
int AttributeOf(const Description& description, CUdevice_attribute attribute, int device);

}  // namespace commpool::internal::emulator
