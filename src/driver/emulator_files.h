// Finds the emulator's two libraries. Any thread.
#ifndef COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_
#define COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_

#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

// The paths of the two libraries.
struct EmulatorFiles {
  std::string cuda;  // the emulated libcuda.so.1, with its folder: the bare name would find the real driver
  std::string nccl;  // the emulated libnccl.so.2
};

// Looks in `folder`; where it is empty, in EmulatorFolders(). kNotFound lists where it looked.
Result<EmulatorFiles> FindEmulator(const std::string& folder);

// The folders that may hold the libraries, in the order of the search: beside the library with this code, beside the
// program, in the program's runfiles, in Bazel's tree. The two libraries lie side by side, or in cuda/ and nccl/.
std::vector<std::string> EmulatorFolders();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_EMULATOR_FILES_H_
