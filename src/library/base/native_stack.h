// Where a program in C or C++ asked. Any thread.
#pragma once

#include <string>

namespace commpool::internal {

// The frames of the calling thread outside of this library, the innermost first, in lines: "function (file)", or
// "file+0x1234" for `addr2line -e file 0x1234` where the file tells no name (an executable needs -rdynamic for that).
std::string NativeStack();

}  // namespace commpool::internal
