// The part of a communicator that keeps pre-multiplied sums.
#include <cstring>

#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

// As in NCCL (src/enqueue.cc), communicators use different numbers, so a number of another communicator is refused.
ncclResult_t EmulatedCommunicator::AddScaledSum(const void* scalar, ncclDataType_t type,
                                                ncclScalarResidence_t residence, ncclRedOp_t* operation) {
  if (scalar == nullptr || operation == nullptr || ElementBytes(type) == 0 ||
      (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
    return ncclInvalidArgument;
  }
  ScaledSum sum = {.type = type, .scalar = {}, .device_scalar = nullptr};
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(sum.scalar.data(), scalar, ElementBytes(type));
  } else {
    if (const ncclResult_t result = CheckBuffer("scalar", scalar, ElementBytes(type)); result != ncclSuccess) {
      return result;
    }
    sum.device_scalar = scalar;
  }
  constexpr uint64_t kCommunicatorBits = 0x3fff0000;
  const auto base = static_cast<int>((peers_[0].magic ^ reinterpret_cast<uintptr_t>(this) << 8) & kCommunicatorBits);
  const int number = ncclNumOps + 1 + base + next_scaled_sum_++;
  scaled_sums_[number] = sum;
  *operation = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t EmulatedCommunicator::RemoveScaledSum(ncclRedOp_t operation) {
  if (scaled_sums_.erase(operation) == 1) return ncclSuccess;
  COMMPOOL_NCCL_WARN("ncclRedOpDestroy : operation %d is built in, or not of this communicator", operation);
  return ncclInvalidArgument;
}

ncclResult_t EmulatedCommunicator::ResolveOperation(CollectiveRequest* request) const {
  if (request->operation >= 0 && request->operation < ncclNumOps) return ncclSuccess;
  const auto found = scaled_sums_.find(request->operation);
  if (found == scaled_sums_.end() || found->second.type != request->type) {
    COMMPOOL_NCCL_WARN("%s : operation %d is not of this communicator, or of another type than %d",
                       CollectiveName(request->kind), request->operation, request->type);
    return ncclInvalidArgument;
  }
  request->operation = ncclNumOps;
  request->scalar = found->second.scalar;
  request->device_scalar = found->second.device_scalar;
  return ncclSuccess;
}

}  // namespace commpool::internal::emulated_nccl
