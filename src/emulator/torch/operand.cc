#include "src/emulator/torch/operand.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace commpool::internal::emulated_torch {

namespace {

// A tensor with more pieces than this is declared with the smallest of its gaps filled.
constexpr int64_t kMostPieces = 1 << 14;

struct Dimension {
  int64_t step;  // in bytes
  int64_t size;
};

void AppendPieces(const std::vector<Dimension>& outer, size_t depth, CUdeviceptr address, size_t bytes,
                  Ranges* ranges) {
  if (depth == 0) {
    ranges->push_back({address, bytes});
    return;
  }
  const Dimension& dimension = outer[depth - 1];
  for (int64_t index = 0; index < dimension.size; ++index) {
    AppendPieces(outer, depth - 1, address + static_cast<CUdeviceptr>(index * dimension.step), bytes, ranges);
  }
}

}  // namespace

void AppendRanges(const at::Tensor& tensor, Ranges* ranges) {
  const auto item = static_cast<int64_t>(tensor.element_size());
  std::vector<Dimension> dimensions;
  for (int64_t dimension = 0; dimension < tensor.dim(); ++dimension) {
    // an expanded dimension is the same bytes again
    if (tensor.size(dimension) == 1 || tensor.stride(dimension) == 0) continue;
    dimensions.push_back({tensor.stride(dimension) * item, tensor.size(dimension)});
  }
  std::sort(dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  int64_t bytes = item;
  int64_t pieces = 1;
  for (const Dimension& dimension : dimensions) pieces *= dimension.size;
  size_t merged = 0;
  for (; merged < dimensions.size(); ++merged) {
    const Dimension& dimension = dimensions[merged];
    if (dimension.step > bytes && pieces <= kMostPieces) break;
    bytes += dimension.step * (dimension.size - 1);
    pieces /= dimension.size;
  }
  dimensions.erase(dimensions.begin(), dimensions.begin() + static_cast<std::ptrdiff_t>(merged));
  AppendPieces(dimensions, dimensions.size(), reinterpret_cast<CUdeviceptr>(tensor.const_data_ptr()),
               static_cast<size_t>(bytes), ranges);
}

Operand::Operand(const at::Tensor& tensor, Use use, Ranges* reads, Ranges* writes) : use_(use) {
  if (!tensor.defined()) return;
  if (!tensor.is_cuda()) {
    kind_ = Kind::kHost;
    host_ = tensor.detach().clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) host_.unsafeGetTensorImpl()->set_wrapped_number(true);
    return;
  }
  kind_ = Kind::kDevice;
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
  type_ = tensor.scalar_type();
  conjugate_ = tensor.is_conj();
  negative_ = tensor.is_neg();
  empty_ = tensor.numel() == 0;
  if (empty_) return;
  Ranges* const ranges = use == Use::kWrite ? writes : reads;
  first_ = ranges->size();
  AppendRanges(tensor, ranges);
}

at::Tensor Operand::On(const void* const* reads, void* const* writes) const {
  if (kind_ != Kind::kDevice) return host_;
  const auto options = at::TensorOptions().dtype(type_);
  if (empty_) return at::empty_strided(sizes_, strides_, options);
  void* const memory = use_ == Use::kWrite ? writes[first_] : const_cast<void*>(reads[first_]);
  at::Tensor tensor = at::from_blob(memory, sizes_, strides_, options);
  if (conjugate_) tensor._set_conj(true);
  if (negative_) tensor._set_neg(true);
  return tensor;
}

}  // namespace commpool::internal::emulated_torch
