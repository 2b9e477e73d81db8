// Tells whether NCCL can use NVLink multicast (NVLS) on a range of a pool, as far as one can tell without making a
// multicast object. Where NCCL cannot it falls back silently.
//
// Any thread; calls the driver, so never under a lock. A yes is no proof: NCCL's log says what NCCL used.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <string>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "src/library/pool/shared/tables.h"
#include "src/library/registration/window_book.h"

namespace commpool::internal {

// The range and the communicator that a program asks about.
struct NvlsQuestion {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  ncclComm_t communicator = nullptr;
};

// Empty where the range is eligible, else the first reason against it. kInvalidArgument for 0 bytes and for an invalid
// communicator; kNotFound for memory of no pool. Asks NCCL for the communicator's size and device, so the caller must
// be one who may use it.
Result<std::string> WhyNoNvls(const Driver& driver, const AddressTable& addresses, const WindowBook& windows,
                              const NvlsQuestion& question);

}  // namespace commpool::internal
