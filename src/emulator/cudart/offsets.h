// Where the elements of tensors with gaps or repeats lie: what PyTorch's kernels get as an OffsetCalculator.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace commpool::internal::emulated_cudart {

class Offsets {
 public:
  // Nothing where the memory holds none for so many tensors of so many elements.
  static std::optional<Offsets> Read(const void* calculator, size_t tensors, size_t count);
  // Bytes of a calculator.
  static constexpr size_t SizeFor(size_t tensors) { return sizeof(uint32_t) * (1 + kDimensions * (3 + tensors)); }

  // In bytes, of element `index` of a tensor.
  size_t Of(size_t tensor, size_t index) const;
  // Of a tensor's last element.
  size_t Last(size_t tensor) const;

 private:
  static constexpr size_t kDimensions = 25;

  struct Dimension {
    size_t size;
    std::vector<size_t> strides;  // by tensor
  };
  std::vector<Dimension> dimensions_;  // the fastest first
};

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_OFFSETS_H_
