// Where the emulator's two libraries lie. Any thread.
#ifndef COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_
#define COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_

#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

struct EmulatorFiles {
  std::string cuda;  // the emulated libcuda.so.1, with its folder: a bare name would find the real one
  std::string nccl;  // the emulated libnccl.so.2
};

// Looks in `folder`, or where it is empty in EmulatorFolders(). kNotFound lists what was tried.
Result<EmulatorFiles> FindEmulator(const std::string& folder);

// The folders that may hold the libraries, nearest first: beside the library that holds this code, beside the program,
// in the program's runfiles, and where Bazel builds. In each, both libraries lie side by side or in cuda/ and nccl/.
std::vector<std::string> EmulatorFolders();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_
