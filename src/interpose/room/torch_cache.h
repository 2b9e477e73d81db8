// PyTorch's cache of this process. Who asks may hold the allocator's lock: so a thread of its own empties it, and
// nobody waits for that longer than a second. Any thread.
#pragma once

namespace commpool::run {

// As torch.cuda.empty_cache(), without Python: the caller may hold the interpreter's lock. It frees memory, which waits
// for the devices: REQUIRES that every stream is idle, and looks once more. Does nothing where this process has no
// PyTorch from 2.9 to 2.15.
void EmptyTorchCache();

}  // namespace commpool::run
