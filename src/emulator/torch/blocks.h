// The blocks of PyTorch's allocator, told to the emulator.
#pragma once

#include <ATen/core/Tensor.h>

namespace commpool::internal::emulated_torch {

// Begins, once the allocator knows its devices. Any thread may call it before each operation.
void AnnounceBlocks();

// Announces the block of a tensor in PyTorch's pinned memory, until it is free again. Other tensors are ignored.
void AnnouncePinned(const at::Tensor& tensor);

}  // namespace commpool::internal::emulated_torch
