// The bytes of PyTorch's handles of expandable segments, by their version (PyTorch's c10/cuda/CUDACachingAllocator.cpp,
// ExpandableSegment::share). The importer takes the descriptor from the process by pidfd_getfd, and remembers what it
// mapped by the handle's bytes. Includes nothing of PyTorch.
#pragma once

#include <cstdint>
#include <string>

namespace commpool::torch_adapter {

// Which process has the descriptor of how much memory.
struct SharedSegment {
  uint64_t process = 0;
  uint64_t bytes = 0;
  int descriptor = -1;
};

enum class HandleTypeField { kAbsent, kPresent };

// Since PyTorch 2.13 a handle says of which type its descriptors are.
struct HandleLayout {
  char version;
  HandleTypeField handle_type;
};
inline constexpr HandleLayout kHandleLayouts[] = {
    {1, HandleTypeField::kAbsent}, {2, HandleTypeField::kAbsent}, {3, HandleTypeField::kPresent}};

template <typename Value>
void Append(std::string& handle, const Value& value) {
  handle.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Null where the version is unknown.
inline const HandleLayout* LayoutOf(char version) {
  for (const HandleLayout& layout : kHandleLayouts) {
    if (layout.version == version) return &layout;
  }
  return nullptr;
}

inline std::string HandleOf(const HandleLayout& layout, const SharedSegment& segment) {
  constexpr uint64_t kDescriptors = 1, kPosixFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  std::string handle{layout.version, 'e'};
  Append(handle, segment.process);
  Append(handle, segment.bytes);
  Append(handle, kDescriptors);
  if (layout.handle_type == HandleTypeField::kPresent) Append(handle, kPosixFileDescriptor);
  Append(handle, segment.descriptor);
  return handle;
}

}  // namespace commpool::torch_adapter
