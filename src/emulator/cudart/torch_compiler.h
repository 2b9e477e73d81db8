// Compiles the sources that this library carries (src/emulator/torch) with the user's compiler, and keeps the binary in
// a private folder: COMMPOOL_CACHE, else ~/.cache/commpool. The Python package keeps PyTorch's router there too.
#pragma once

#include <filesystem>
#include <string>

namespace commpool::internal::emulated_cudart {

// Returns the binary for the PyTorch in this folder; empty, with the reason, if there is none and it cannot be made.
// Processes that start together wait for the one that compiles.
std::filesystem::path CompileForTorch(const std::filesystem::path& torch, const std::string& version,
                                      std::string* error);

}  // namespace commpool::internal::emulated_cudart
