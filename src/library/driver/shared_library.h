// A shared library that is opened at run time and never closed, because other code keeps pointers into it, and the
// search for the emulator's two. Any thread.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

class SharedLibrary {
 public:
  // Opens the file; the system searches for a name without a folder. With RTLD_GLOBAL libraries that are opened later
  // find its symbols too. The message of kNotFound has the system's own words.
  static Result<SharedLibrary> Open(const std::string& file, int scope = RTLD_LOCAL);
  // The library of that name that the process has loaded already; kNotFound where there is none.
  static Result<SharedLibrary> FindLoaded(const std::string& name);

  // Null where the library lacks the symbol.
  void* Symbol(const char* name) const;
  // The file that was opened.
  const std::string& file() const { return file_; }

 private:
  SharedLibrary(void* handle, std::string file) : handle_(handle), file_(std::move(file)) {}

  void* handle_;
  std::string file_;
};

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
