#include "src/emulator/cudart/offsets.h"

#include <utility>

namespace commpool::internal::emulated_cudart {

// The calculator holds the number of dimensions, then for each of 25 dimensions a size and two numbers to divide by it,
// then for each dimension one stride for each tensor.
std::optional<Offsets> Offsets::Read(const void* calculator, size_t tensors, size_t count) {
  constexpr size_t kWordsOfSize = 3;
  const auto* const words = static_cast<const uint32_t*>(calculator);
  if (words[0] > kDimensions) return std::nullopt;
  Offsets offsets;
  size_t elements = 1;
  for (size_t index = 0; index < words[0]; ++index) {
    Dimension dimension{words[1 + kWordsOfSize * index], {}};
    const uint32_t* const strides = words + 1 + kWordsOfSize * kDimensions + tensors * index;
    dimension.strides.assign(strides, strides + tensors);
    elements *= dimension.size;
    offsets.dimensions_.push_back(std::move(dimension));
  }
  return elements == count ? std::optional(offsets) : std::nullopt;
}

size_t Offsets::Of(size_t tensor, size_t index) const {
  size_t offset = 0;
  for (const Dimension& dimension : dimensions_) {
    offset += index % dimension.size * dimension.strides[tensor];
    index /= dimension.size;
  }
  return offset;
}

size_t Offsets::Last(size_t tensor) const {
  size_t offset = 0;
  for (const Dimension& dimension : dimensions_) offset += (dimension.size - 1) * dimension.strides[tensor];
  return offset;
}

}  // namespace commpool::internal::emulated_cudart
