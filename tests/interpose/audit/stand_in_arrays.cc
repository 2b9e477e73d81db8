// What the emulator lacks, preloaded in front of it: arrays, and graphs that allocate. It makes none of their memory;
// it says that less is free, as a driver would that had.
#include <cuda.h>
#include <dlfcn.h>

#include <map>

namespace {

constexpr size_t kGranule = size_t{2} << 20;

std::map<const void*, size_t> arrays;
size_t in_arrays = 0;
size_t in_graphs = 0;

// An array takes more than its elements do.
template <typename Array>
CUresult Make(Array* array, size_t elements) {
  *array = reinterpret_cast<Array>(0x1000 + arrays.size());
  const size_t bytes = (elements * sizeof(float) / kGranule + 1) * kGranule;
  arrays[*array] = bytes;
  in_arrays += bytes;
  return CUDA_SUCCESS;
}

CUresult Destroy(const void* array) {
  in_arrays -= arrays[array];
  arrays[array] = 0;
  return CUDA_SUCCESS;
}

CUresult AddToGraph(CUdeviceptr* pointer, size_t bytes) {
  *pointer = 0x70000000;
  in_graphs += bytes;
  return CUDA_SUCCESS;
}

template <typename Function>
Function* Next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (wanted->NumChannels == 3) return CUDA_ERROR_INVALID_VALUE;
  return Make(array, wanted->Width * wanted->Height);
}

EXPORTED CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  if (wanted->Depth > 1 << 20) return CUDA_ERROR_OUT_OF_MEMORY;
  return Make(array, wanted->Width * wanted->Height * wanted->Depth);
}

EXPORTED CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned) {
  return Make(array, wanted->Width * wanted->Height * 4 / 3);
}

EXPORTED CUresult cuArrayDestroy(CUarray array) { return Destroy(array); }
EXPORTED CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) { return Destroy(array); }

EXPORTED CUresult cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                         CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return AddToGraph(&parameters->dptr, parameters->bytesize);
}

EXPORTED CUresult cuGraphAddNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t,
                                    CUgraphNodeParams* parameters) {
  if (parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_SUCCESS;
  return AddToGraph(&parameters->alloc.dptr, parameters->alloc.bytesize);
}

EXPORTED CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (Next(&cuStreamIsCapturing, "cuStreamIsCapturing")(stream, &status) != CUDA_SUCCESS ||
      status == CU_STREAM_CAPTURE_STATUS_NONE) {
    return Next(&cuMemAllocAsync, "cuMemAllocAsync")(pointer, bytes, stream);
  }
  return AddToGraph(pointer, bytes);
}

EXPORTED CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  *static_cast<cuuint64_t*>(value) = device == 0 && attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? in_graphs : 0;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = Next(&cuMemGetInfo_v2, "cuMemGetInfo_v2")(free, total);
  *free -= in_arrays + in_graphs;
  return result;
}
