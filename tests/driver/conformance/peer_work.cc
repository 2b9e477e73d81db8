#include "tests/driver/conformance/peer_work.h"

#include <cstring>

#include "tests/driver/device_fixture.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

namespace {

constexpr uint64_t kFilled = 4096;
constexpr CUmemLocation kDevice = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

template <typename IpcHandle>
IpcHandle HandleIn(const Request& request) {
  IpcHandle handle;
  std::memcpy(&handle, request.handle, sizeof(handle));
  return handle;
}

}  // namespace

PeerWork::PeerWork()
    : driver_(*SharedDriver()),
      cuda_(driver_.cuda),
      context_(PrimaryContext::Retain(driver_, 0).value()),
      current_(driver_, context_) {}

CUresult PeerWork::MapHandle() {
  const CUmemAccessDesc access{kDevice, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUmemAllocationProp properties = PropertiesAt(kDevice);
  size_t bytes = 0;  // tests share pieces of one granularity
  cuda_.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  CUresult result = cuda_.cuMemAddressReserve(&address_, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuda_.cuMemMap(address_, bytes, 0, handle_, 0);
  return result == CUDA_SUCCESS ? cuda_.cuMemSetAccess(address_, bytes, &access, 1) : result;
}

CUresult PeerWork::Unmap() {
  size_t bytes = 0;
  CUresult result = cuda_.cuMemGetAddressRange(nullptr, &bytes, address_);
  if (result == CUDA_SUCCESS) result = cuda_.cuMemUnmap(address_, bytes);
  if (result == CUDA_SUCCESS) result = cuda_.cuMemAddressFree(address_, bytes);
  return result == CUDA_SUCCESS ? cuda_.cuMemRelease(handle_) : result;
}

CUresult PeerWork::Make(uint64_t bytes) {
  const CUmemAllocationProp properties = PropertiesAt(kDevice);
  const CUresult result = cuda_.cuMemCreate(&handle_, bytes, &properties, 0);
  return result == CUDA_SUCCESS ? MapHandle() : result;
}

CUresult PeerWork::Import(int descriptor) {
  const CUresult result = cuda_.cuMemImportFromShareableHandle(
      &handle_, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return result == CUDA_SUCCESS ? MapHandle() : result;
}

CUresult PeerWork::DoWithMemory(const Request& request, int descriptor, Answer* answer, int* exported) {
  switch (request.ask) {
    case Ask::kMakeShareable:
      return Make(request.value);
    case Ask::kExport:
      return cuda_.cuMemExportToShareableHandle(exported, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    case Ask::kImport:
      return Import(descriptor);
    case Ask::kUnmap:
      return Unmap();
    case Ask::kAllocate:
      return cuda_.cuMemAlloc(&address_, request.value);
    case Ask::kFree:
      return cuda_.cuMemFree(address_);
    case Ask::kGetMemory:
      return Ipc().get_memory(reinterpret_cast<CUipcMemHandle*>(answer->handle), address_ + request.value);
    case Ask::kOpenMemory: {
      const CUresult result =
          Ipc().open_memory(&address_, HandleIn<CUipcMemHandle>(request), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      answer->value = address_;
      return result;
    }
    case Ask::kCloseMemory:
      return Ipc().close_memory(address_);
    case Ask::kFill: {
      const CUresult result =
          cuda_.cuMemsetD8Async(address_, static_cast<unsigned char>(request.value), kFilled, nullptr);
      return result == CUDA_SUCCESS ? cuda_.cuCtxSynchronize() : result;
    }
    case Ask::kRead:
      return cuda_.cuMemcpyDtoH(&answer->value, address_, 1);
    default:
      return cuda_.cuMemGetInfo(&answer->value, nullptr);
  }
}

CUresult PeerWork::DoWithEvent(const Request& request, Answer* answer) {
  switch (request.ask) {
    case Ask::kMakeEvent:
      return cuda_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    case Ask::kGetEvent:
      return Ipc().get_event(reinterpret_cast<CUipcEventHandle*>(answer->handle), event_);
    case Ask::kOpenEvent:
      return Ipc().open_event(&event_, HandleIn<CUipcEventHandle>(request));
    case Ask::kRecord:
      return cuda_.cuEventRecord(event_, nullptr);
    case Ask::kBlock:
      unblocked_ = std::promise<void>();
      return cuda_.cuLaunchHostFunc(
          nullptr, [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); }, &unblocked_);
    case Ask::kUnblock:
      unblocked_.set_value();
      return cuda_.cuCtxSynchronize();
    case Ask::kQueryEvent:
      return cuda_.cuEventQuery(event_);
    default:
      return cuda_.cuEventDestroy(event_);
  }
}

Answer PeerWork::Do(const Request& request, int descriptor, int* exported) {
  Answer answer;
  const bool about_event = request.ask >= Ask::kMakeEvent && request.ask <= Ask::kDestroyEvent;
  answer.result = about_event ? DoWithEvent(request, &answer) : DoWithMemory(request, descriptor, &answer, exported);
  return answer;
}

}  // namespace commpool::internal::testing
