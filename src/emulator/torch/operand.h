// One tensor of an operation, without the tensor: where it lies and how it is read. A deferred operation may keep no
// tensor of the program's, whose last reference may take Python's lock under the driver's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "src/emulator/runtime_extension.h"

namespace commpool::internal::emulated_torch {

using Ranges = std::vector<commpoolEmulatorRange>;

// Appends the bytes that the tensor's elements cover, without the gaps between them.
void AppendRanges(const at::Tensor& tensor, Ranges* ranges);

// A value. The device's worker makes a tensor of it, over host pointers.
class Operand {
 public:
  enum class Use { kRead, kWrite };

  // Takes a copy of a host tensor, as CUDA does when an operation is submitted. Appends what it touches to `reads` or
  // `writes`.
  Operand(const at::Tensor& tensor, Use use, Ranges* reads, Ranges* writes);

  // `reads` and `writes` are the host pointers of those ranges.
  at::Tensor On(const void* const* reads, void* const* writes) const;

  bool is_device() const { return kind_ == Kind::kDevice; }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  enum class Kind { kUndefined, kHost, kDevice };

  Kind kind_ = Kind::kUndefined;
  Use use_;
  at::Tensor host_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  at::ScalarType type_ = at::ScalarType::Undefined;
  bool conjugate_ = false;
  bool negative_ = false;
  bool empty_ = false;
  size_t first_ = 0;  // its first range
};

}  // namespace commpool::internal::emulated_torch
