// Who asked: the first frame of the stack that belongs neither to the driver, nor to CUPTI, nor to a shared runtime.
// Any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/interpose/audit/loaded_objects.h"

namespace commpool::audit {

// What a table calls the library of this file: "NCCL" for libnccl.so.2, else its name. "the program" for none.
std::string NameOfLibrary(const std::string& file);

struct Caller {
  std::string library = "unknown";
  std::string file;  // of its code
};

// Walks the stack of the calling thread; "unknown" where no frame tells.
Caller CallerOf(LoadedObjects& objects);
inline std::string NameOfCaller(LoadedObjects& objects) { return CallerOf(objects).library; }

// Whether the thread is within a function of a file whose name begins so.
bool IsWithin(LoadedObjects& objects, std::string_view file);

}  // namespace commpool::audit
