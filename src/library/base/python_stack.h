// Where a program in Python asked. Any thread.
#pragma once

#include <string>

namespace commpool::internal {

// The frames of the calling thread, the innermost first, as "file.py:12 function" in lines; empty where there is no
// Python, none on this thread, or one that does not export what this needs. `find` looks up a symbol of the process; it
// is called once.
std::string PythonStack(void* (*find)(const char* name));

// From what Python's own fault handler writes of a thread.
std::string ReadFrames(const std::string& dump);

}  // namespace commpool::internal
