// Element types and what reduces them. Pure functions: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_

#include <nccl.h>

#include <cstddef>

namespace commpool::emulated_nccl {

// Bytes of one element; 0 for a value that is no type.
size_t ElementBytes(ncclDataType_t type);

// Whether elements of `type` can be added: the two 8-bit floats can only be moved.
bool CanReduce(ncclDataType_t type);

// Whether `type` is a floating-point type.
bool IsFloat(ncclDataType_t type);

// result[i] = own[i] (+) received[i], for sum and average, product, maximum or minimum. `result` may be `own`.
// REQUIRES: CanReduce(type).
void Reduce(ncclDataType_t type, ncclRedOp_t operation, const void* own, const void* received, void* result,
            size_t count);

// result[i] = values[i] / ranks. `result` may be `values`.
void Divide(ncclDataType_t type, const void* values, int ranks, void* result, size_t count);

// Floats are divided before they are added, so that a sum cannot overflow; whole numbers after.
inline bool DividesBefore(ncclDataType_t type, ncclRedOp_t operation) { return operation == ncclAvg && IsFloat(type); }
inline bool DividesAfter(ncclDataType_t type, ncclRedOp_t operation) { return operation == ncclAvg && !IsFloat(type); }

}  // namespace commpool::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_
