// Who asked: the first frame of the stack that belongs neither to the driver, nor to CUPTI, nor to a shared runtime.
// Any thread.
#ifndef COMMPOOL_SRC_INTERPOSE_AUDIT_CALLERS_H_
#define COMMPOOL_SRC_INTERPOSE_AUDIT_CALLERS_H_

#include <string>

#include "src/interpose/audit/loaded_objects.h"

namespace commpool::audit {

// What a table calls the library of this file: "NCCL" for libnccl.so.2, else its name. "the program" for none.
std::string NameOfLibrary(const std::string& file);

// Walks the stack of the calling thread; "unknown" where no frame tells.
std::string NameOfCaller(LoadedObjects& objects);

}  // namespace commpool::audit

#endif  // COMMPOOL_SRC_INTERPOSE_AUDIT_CALLERS_H_
