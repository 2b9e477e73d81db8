// The blocks of PyTorch's allocator, told to the emulator.
#pragma once

namespace commpool::internal::emulated_torch {

// Begins, once the allocator knows its devices. Any thread may call it before each operation.
void AnnounceBlocks();

}  // namespace commpool::internal::emulated_torch
