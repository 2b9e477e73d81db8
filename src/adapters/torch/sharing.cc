// The router's part that lets other processes open a tensor of ours by PyTorch's own handles.
//
// A handle is a version byte, 'c' or 'e', and a payload: of 'c' CUDA's IPC handle; of 'e' the process, what each
// handle's memory has in bytes, and descriptors (PyTorch's c10/cuda/CUDACachingAllocator.cpp,
// ExpandableSegment::share). The importer takes the descriptors from the process by pidfd_getfd, and remembers what it
// mapped by the handle's bytes. So a segment's descriptor stays the same while the segment lives.
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <string>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/router.h"

namespace commpool::torch_adapter {
namespace {

// What precedes the descriptors, without padding that is not zero: the importer compares all bytes.
struct Header {
  uint64_t process = 0;
  uint64_t segment_bytes = 0;
  uint64_t descriptors = 1;
};

// The version that PyTorch writes, read from a handle of its own.
char NativeVersion() {
  void* const block = Native()->raw_alloc(1);
  const std::string handle = Native()->shareIpcHandle(block).handle;
  Native()->raw_delete(block);
  TORCH_CHECK(!handle.empty(), "commpool: PyTorch made an empty handle");
  return handle[0];
}

template <typename Value>
void Append(std::string& handle, const Value& value) {
  handle.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string HandleOf(char version, const Header& header, int descriptor) {
  constexpr char kLeast = 1, kWithHandleType = 3, kMost = 3;  // 3 since PyTorch 2.13
  TORCH_CHECK(version >= kLeast && version <= kMost, "commpool: this PyTorch writes handles of version ", int{version},
              ", and this commpool knows 1 to 3: share a copy that is made outside of the scope (tensor.clone())");
  std::string handle{version, 'e'};
  Append(handle, header);
  if (version >= kWithHandleType) Append(handle, uint64_t{1});  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  Append(handle, descriptor);
  return handle;
}

}  // namespace

torch_names::ShareableHandle Router::shareIpcHandle(void* pointer) {
  if (!OurBlock(pointer)) return Native()->shareIpcHandle(pointer);
  void* base = nullptr;
  Header header;
  header.process = static_cast<uint64_t>(getpid());
  int descriptor = -1;
  TORCH_CHECK(Commpool().share(pointer, &base, &header.segment_bytes, &descriptor) == COMMPOOL_OK,
              "commpool: ", Commpool().last_error(),
              ". Share a copy that is made outside of the scope (tensor.clone())");
  static const char version = NativeVersion();
  const ptrdiff_t offset = static_cast<char*>(pointer) - static_cast<char*>(base);
  if (descriptor >= 0) return {offset, HandleOf(version, header, descriptor)};
  cudaIpcMemHandle_t of_cuda;
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&of_cuda, base));
  std::string handle{version, 'c'};
  Append(handle, of_cuda);
  return {offset, handle};
}

}  // namespace commpool::torch_adapter
