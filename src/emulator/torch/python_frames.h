// The frames of the calling thread, by the functions that every Python 3.9 or later exports. Holds Python's lock while
// it looks.
#pragma once

namespace commpool::internal::emulated_torch {

// Returns "train.py:12 in step", with the line of PyTorch's own that it has called where that one is of its distributed
// or optimising parts. The text lives as long as the process. Null without Python, or if the thread runs none.
const char* PythonPlace();

// The same for a caller with a lock: null unless the thread has Python's lock already.
const char* PythonPlaceIfLocked();

// Says whether the interpreter is on its way out: it ends tensors in no order of the program's.
bool PythonEnds();

}  // namespace commpool::internal::emulated_torch
