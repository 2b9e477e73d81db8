// What calls for CUDA arrays mean for the books. How an array lies in memory only the driver knows, so what one takes
// is measured when it is made. A small one may find room in what another took, and take nothing.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "src/interpose/audit/accounts.h"

namespace commpool::audit {

// Of the elements alone, on all levels: what is written of an array that was refused, or that nobody can measure.
// Packed and compressed formats count a byte a channel.
uint64_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels);

struct MadeArray : Account {
  template <typename... Arguments>
  static void Before(Event& event, Arguments...) {
    MeasureBefore(event, kNoDevice);
  }
  static void After(Event& event, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted);
  static void After(Event& event, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted);
  static void After(Event& event, CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned levels);
};

struct EndedArray : Account {
  static void Before(Event& event, CUarray array);
  static void Before(Event& event, CUmipmappedArray array);
  template <typename Array>
  static void After(Event& event, Array) {
    EnterEnded(event);
  }
};

}  // namespace commpool::audit
