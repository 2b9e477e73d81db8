#include "src/interpose/audit/array_accounts.h"

#include <algorithm>
#include <optional>

namespace commpool::audit {

namespace {

uint64_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 1;
  }
}

void EnterArray(Event& event, const void* array, const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels) {
  uint64_t bytes = ElementBytes(wanted, levels);
  if (event.done()) {
    if (const std::optional<int64_t> taken = MeasuredBytes(event)) bytes = std::max<int64_t>(*taken, 0);
  }
  EnterMade(event, What::kArray, reinterpret_cast<uint64_t>(array), bytes, event.device);
}

// The handle that a call has written, where it has.
template <typename Array>
const void* HandleAt(const Event& event, const Array* place) {
  return event.done() ? *place : nullptr;
}

}  // namespace

uint64_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels) {
  constexpr size_t kOne = 1;
  const bool layered = (array.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  uint64_t elements = 0;
  for (unsigned level = 0; level < std::min(levels, 32u); ++level) {
    const size_t depth = layered ? array.Depth : array.Depth >> level;
    elements += std::max(array.Width >> level, kOne) * std::max(array.Height >> level, kOne) * std::max(depth, kOne);
  }
  return elements * array.NumChannels * ChannelBytes(array.Format);
}

void MadeArray::After(Event& event, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (wanted == nullptr) return;
  const CUDA_ARRAY3D_DESCRIPTOR flat = {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0};
  EnterArray(event, HandleAt(event, array), flat, 1);
}

void MadeArray::After(Event& event, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  if (wanted != nullptr) EnterArray(event, HandleAt(event, array), *wanted, 1);
}

void MadeArray::After(Event& event, CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned levels) {
  if (wanted != nullptr) EnterArray(event, HandleAt(event, array), *wanted, levels);
}

void EndedArray::Before(Event& event, CUarray array) {
  TakeEnded(event, What::kArray, reinterpret_cast<uint64_t>(array));
}

void EndedArray::Before(Event& event, CUmipmappedArray array) {
  TakeEnded(event, What::kArray, reinterpret_cast<uint64_t>(array));
}

}  // namespace commpool::audit
