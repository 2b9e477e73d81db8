// Types of elements and how they are reduced. Pure functions: any thread.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace commpool::internal::emulated_nccl {

// Returns the bytes of one element; 0 if `type` is invalid.
size_t ElementBytes(ncclDataType_t type);

// The product, or nothing where it does not fit into 64 bits.
std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b);

// Whether `type` is a floating-point type.
bool IsFloat(ncclDataType_t type);

// result[i] = own[i] (+) received[i], for sum, average, product, maximum or minimum. `result` may be `own`. REQUIRES,
// here and below: ElementBytes(type) != 0.
void Reduce(ncclDataType_t type, ncclRedOp_t operation, const void* own, const void* received, void* result,
            size_t count);

// result[i] = values[i] / ranks. `result` may be `values`.
void Divide(ncclDataType_t type, const void* values, int ranks, void* result, size_t count);

// result[i] = values[i] * *scalar, where `scalar` has the same type. `result` may be `values`.
void Scale(ncclDataType_t type, const void* values, const void* scalar, void* result, size_t count);

// One reduction as a collective carries it out.
struct Reduction {
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
  const void* scalar = nullptr;  // for a pre-multiplied sum; else null

  // Says whether each rank scales its own values before the sum: by the scalar, or for averages of floats by the number
  // of ranks, so that a sum cannot overflow. Averages of whole numbers are divided after the sum.
  bool PreparesOwn() const;
  void PrepareOwn(const void* values, int ranks, void* result, size_t count) const;
  bool DividesAfter() const { return operation == ncclAvg && !IsFloat(type); }
};

}  // namespace commpool::internal::emulated_nccl
