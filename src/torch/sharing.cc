// The router's part that lets other processes open a tensor of ours by PyTorch's own handles.
//
// A handle is a version byte, 'c' or 'e', and a payload: of 'c' CUDA's IPC handle, of 'e' that of handle_layouts.h. The
// importer compares all bytes with those that it has seen. So a segment's descriptor stays the same while the segment
// lives.
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "src/torch/commpool_calls.h"
#include "src/torch/handle_layouts.h"
#include "src/torch/router.h"

namespace commpool::torch_adapter {
namespace {

// The layout of the version that PyTorch writes, which a handle of its own says.
const HandleLayout& NativeLayout() {
  const std::unique_ptr<void, void (*)(void*)> block(Native()->raw_alloc(1),
                                                     [](void* pointer) { Native()->raw_delete(pointer); });
  const std::string handle = Native()->shareIpcHandle(block.get()).handle;
  TORCH_CHECK(!handle.empty(), "commpool: PyTorch made an empty handle");
  const HandleLayout* const layout = LayoutOf(handle[0]);
  TORCH_CHECK(layout != nullptr, "commpool: this PyTorch writes handles of version ", int{handle[0]},
              ", which this commpool does not know: share a copy that is made outside of the scope (tensor.clone())");
  return *layout;
}

}  // namespace

torch_names::ShareableHandle Router::shareIpcHandle(void* pointer) {
  if (!OurBlock(pointer)) return Native()->shareIpcHandle(pointer);
  static const HandleLayout& layout = NativeLayout();
  void* base = nullptr;
  SharedSegment segment;
  segment.process = static_cast<uint64_t>(getpid());
  TORCH_CHECK(Commpool().share(pointer, &base, &segment.bytes, &segment.descriptor) == COMMPOOL_OK,
              "commpool: ", Commpool().last_error(),
              ". Share a copy that is made outside of the scope (tensor.clone())");
  const ptrdiff_t offset = static_cast<char*>(pointer) - static_cast<char*>(base);
  if (segment.descriptor >= 0) return {offset, HandleOf(layout, segment)};
  cudaIpcMemHandle_t of_cuda;
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&of_cuda, base));
  std::string handle{layout.version, 'c'};
  Append(handle, of_cuda);
  return {offset, handle};
}

}  // namespace commpool::torch_adapter
