// Where the elements of tensors with gaps or repeats are. PyTorch's kernels get this as an OffsetCalculator.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace commpool::internal::emulated_cudart {

// Owns the sizes and strides of one launch. The emulated elementwise kernels and reductions make it and ask it.
class Offsets {
 public:
  // Returns nothing if the memory is not a calculator for so many tensors and elements.
  static std::optional<Offsets> Read(const void* calculator, size_t tensors, size_t count);
  // Returns the size of a calculator in bytes.
  static constexpr size_t SizeFor(size_t tensors) { return sizeof(uint32_t) * (1 + kDimensions * (3 + tensors)); }

  // Returns the byte offset of element `index` of a tensor.
  size_t Of(size_t tensor, size_t index) const;
  // Returns the byte offset of a tensor's last element.
  size_t Last(size_t tensor) const;

 private:
  static constexpr size_t kDimensions = 25;

  struct Dimension {
    size_t size;
    std::vector<size_t> strides;  // by tensor
  };
  std::vector<Dimension> dimensions_;  // the fastest dimension is first
};

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_
