#include "tools/cli/bench/mimalloc_library.h"

#include "src/driver/shared_library.h"

namespace commpool::cli {

Result<MimallocLibrary> MimallocLibrary::Open() {
  Result<internal::SharedLibrary> library = internal::SharedLibrary::Open("libmimalloc.so.2");
  if (!library.ok()) {
    return Status(StatusCode::kNotFound,
                  "mimalloc is not here (" + library.status().message() +
                      "): tools/setup installs it; libmimalloc.so.2 on LD_LIBRARY_PATH does too");
  }
  MimallocLibrary mimalloc;
  mimalloc.allocate = reinterpret_cast<decltype(mimalloc.allocate)>(library->Symbol("mi_malloc"));
  mimalloc.free = reinterpret_cast<decltype(mimalloc.free)>(library->Symbol("mi_free"));
  if (mimalloc.allocate == nullptr || mimalloc.free == nullptr) {
    return Status(StatusCode::kNotFound, library->file() + " is not mimalloc");
  }
  return mimalloc;
}

}  // namespace commpool::cli
