// Where the program calls an operation: its line in Python, or for backward the line of the operation's forward.
#pragma once

namespace commpool::internal::emulated_torch {

// While it exists, the emulator's reports name the place for what this thread submits. Takes Python's lock for a
// moment: the caller holds no lock of the emulator's or of PyTorch's.
class PlaceScope {
 public:
  PlaceScope();
  ~PlaceScope();
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;

 private:
  const char* before_ = nullptr;
};

}  // namespace commpool::internal::emulated_torch
