// Element types and what reduces them. Pure functions: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_

#include <nccl.h>

#include <cstddef>

namespace commpool::internal::emulated_nccl {

// Bytes of one element; 0 for a value that is no type.
size_t ElementBytes(ncclDataType_t type);

// Whether `type` is a floating-point type.
bool IsFloat(ncclDataType_t type);

// result[i] = own[i] (+) received[i], for sum and average, product, maximum or minimum. `result` may be `own`.
// REQUIRES: ElementBytes(type) != 0, here and below.
void Reduce(ncclDataType_t type, ncclRedOp_t operation, const void* own, const void* received, void* result,
            size_t count);

// result[i] = values[i] / ranks. `result` may be `values`.
void Divide(ncclDataType_t type, const void* values, int ranks, void* result, size_t count);

// result[i] = values[i] * *scalar, an element of the same type. `result` may be `values`.
void Scale(ncclDataType_t type, const void* values, const void* scalar, void* result, size_t count);

// One reduction as a collective carries it out.
struct Reduction {
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
  const void* scalar = nullptr;  // of a pre-multiplied sum; null for the others

  // Each rank's own values are scaled before they are added: by the scalar, or for averages of floats by the number of
  // ranks, so that a sum cannot overflow. Averages of whole numbers are divided after.
  bool PreparesOwn() const;
  void PrepareOwn(const void* values, int ranks, void* result, size_t count) const;
  bool DividesAfter() const { return operation == ncclAvg && !IsFloat(type); }
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_REDUCTION_H_
