// Brings src/emulator/torch into a process that has PyTorch: its operations then run by PyTorch's CPU kernels. Finds
// the binary for the installed version, or lets the user's compiler make it from the sources that this library carries.
#pragma once

#include <cstddef>

namespace commpool::internal::emulated_cudart {

// Nothing happens without PyTorch, and after the first time. Without a binary and a compiler it says so once, and the
// operations are refused one by one. Any thread may call it.
void TakeOverTorchsOperations();

struct EmbeddedFile {
  const char* path;  // in the repository
  const char* text;
};
extern const EmbeddedFile kTorchSources[];
extern const size_t kTorchSourceCount;

}  // namespace commpool::internal::emulated_cudart
