// The blocks of PyTorch's allocator, told to the emulator.
#ifndef COMMPOOL_SRC_EMULATOR_TORCH_BLOCKS_H_
#define COMMPOOL_SRC_EMULATOR_TORCH_BLOCKS_H_

namespace commpool::internal::emulated_torch {

// Begins, once the allocator knows its devices. Any thread may call it before each operation.
void AnnounceBlocks();

}  // namespace commpool::internal::emulated_torch

#endif  // COMMPOOL_SRC_EMULATOR_TORCH_BLOCKS_H_
