#include "src/base/file_descriptor.h"

#include <unistd.h>

namespace commpool::internal {

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace commpool::internal
