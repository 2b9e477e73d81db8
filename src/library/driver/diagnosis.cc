#include "src/library/driver/diagnosis.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "src/library/base/bytes.h"

namespace commpool::internal {

namespace {

template <typename Code>
struct KnownCause {
  Code result;
  std::string_view call;  // the call that the line explains; empty: every call that no other line explains
  const char* cause;
};

constexpr KnownCause<CUresult> kCauses[] = {
    {CUDA_ERROR_NOT_PERMITTED, "cuMemCreate",
     "a fabric handle was asked for, and this process has no IMEX channel (/dev/nvidia-caps-imex-channels); for host "
     "memory of other handles: the driver denies it to this process"},
    {CUDA_ERROR_NOT_SUPPORTED, "cuMemCreate", "the device does not offer this location or handle type"},
    {CUDA_ERROR_INVALID_VALUE, "cuMemCreate",
     "the size is no multiple of the granularity, or the driver does not know the location or the handle type"},
    {CUDA_ERROR_INVALID_DEVICE, "cuMemCreate", "there is no such device or NUMA node"},
    {CUDA_ERROR_INVALID_VALUE, "cuMemMap", "something is mapped there already, or the addresses are not reserved"},
    {CUDA_ERROR_INVALID_VALUE, "cuMemUnmap", "only whole mappings can be unmapped, and only once"},
    {CUDA_ERROR_INVALID_VALUE, "cuMemAddressFree",
     "something is still mapped there, or it is not the whole reservation"},
    {CUDA_ERROR_INVALID_DEVICE, "cuMemSetAccess",
     "the device cannot reach the memory: no NVLink or PCIe peer access between the two"},
    {CUDA_ERROR_NOT_SUPPORTED, "cuMemSetAccess", "the location cannot be given access to this memory"},
    {CUDA_ERROR_NOT_SUPPORTED, "cuMulticastGetGranularity", "the driver is older than CUDA 12.1, or has no multicast"},
    {CUDA_ERROR_INVALID_VALUE, "cuMemFree", "the address is none that cuMemAlloc gave, or was freed already"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "", "no NVLink or PCIe peer access between the two devices"},
    {CUDA_ERROR_INVALID_DEVICE, "", "there is no such device (CUDA_VISIBLE_DEVICES hides some)"},
    {CUDA_ERROR_INVALID_CONTEXT, "", "no context is current on this thread, or the primary context was reset"},
    {CUDA_ERROR_NO_DEVICE, "", "no GPU is visible: is CUDA_VISIBLE_DEVICES empty?"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "",
     "the driver library and the kernel module differ: reboot, or mend the container"},
    {CUDA_ERROR_DEINITIALIZED, "", "the process is exiting and the driver has gone"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "", "the primary context was destroyed or reset by somebody else"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "", "an earlier kernel or copy touched memory that it may not: the context is lost"},
    {CUDA_ERROR_LAUNCH_FAILED, "", "an earlier kernel failed: the context is lost"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "", "an earlier kernel ran too long: the context is lost"},
    {CUDA_ERROR_ASSERT, "", "an assertion failed in an earlier kernel: the context is lost"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "", "the device's memory is damaged: the context is lost"},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, "", "an NVLink failed: the context is lost"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "", "a stream is being captured, and the call is not allowed meanwhile"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "", "a stream is being captured, and the legacy stream is used meanwhile"},
};

constexpr KnownCause<ncclResult_t> kNcclCauses[] = {
    {ncclInvalidArgument, "ncclCommWindowRegister",
     "a window needs memory of one cuMemCreate or ncclMemAlloc, an offset in it that is a multiple of 4096, and the "
     "same size on every rank"},
    {ncclInvalidUsage, "ncclCommWindowRegister",
     "ranks registered in different order, or two threads use the communicator at once"},
    {ncclInvalidArgument, "ncclCommInitRank",
     "a rank or a number of ranks is out of range, or the unique id is foreign"},
    {ncclInvalidUsage, "ncclCommInitRank", "two ranks took the same device"},
    {ncclInvalidArgument, "", "the communicator was destroyed, or a pointer is not memory of its device"},
    {ncclInvalidUsage, "", "calls out of order on the communicator, or two threads use it at once"},
    {ncclRemoteError, "", "another rank failed or left: abort the communicator"},
    {ncclInProgress, "", "the communicator is nonblocking: poll ncclCommGetAsyncError before the next call"},
    {ncclUnhandledCudaError, "", "a CUDA call inside NCCL failed: NCCL_DEBUG=WARN names it"},
    {ncclSystemError, "",
     "a system call inside NCCL failed (network, shared memory, file descriptors): NCCL_DEBUG=WARN names it"},
    {ncclInternalError, "",
     "NCCL found a fault of its own, or ranks run different versions: NCCL_DEBUG=WARN tells more"},
};

constexpr const char* kNcclNames[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                      "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                      "ncclRemoteError",   "ncclInProgress"};
static_assert(std::size(kNcclNames) == ncclInProgress + 1);

constexpr CUresult kSticky[] = {
    CUDA_ERROR_ILLEGAL_ADDRESS,     CUDA_ERROR_LAUNCH_FAILED,        CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,   CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,          CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ASSERT,
    CUDA_ERROR_ECC_UNCORRECTABLE,   CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_DEINITIALIZED};

template <typename Table, typename Code>
std::string DescribeCause(const Table& table, Code result, const CallSite& site) {
  const char* cause = site.likely_cause;
  for (const auto& known : table) {
    if (*cause == '\0' && known.result == result && (known.call == site.call || known.call.empty()))
      cause = known.cause;
  }
  return *cause == '\0' ? "" : std::string("; likely cause: ") + cause;
}

// Such as "cuMemCreate of 2 GiB on device 1 failed: CUDA_ERROR_OUT_OF_MEMORY for segment of pool gradients".
std::string DescribeCall(const CallSite& site, const std::string& error) {
  std::string text = site.call;
  if (site.bytes != 0) text += " of " + FormatBytes(site.bytes);
  if (site.device >= 0) text += " on device " + std::to_string(site.device);
  if (site.numa_node >= 0) text += " on NUMA node " + std::to_string(site.numa_node);
  text += " failed: " + error;
  return *site.purpose == '\0' ? text : text + " for " + site.purpose;
}

// Such as "; 1.2 GiB of 141 GiB are free". Empty where the call is about the host's memory, and where no context of the
// device is current: we would have to change the current context to ask.
std::string DescribeMemoryLeft(const Driver& driver, const CallSite& site) {
  if (site.numa_node >= 0) return "; the node's free memory is in numactl --hardware";
  if (site.memory == Memory::kHost) return "";
  CUcontext context = nullptr;
  if (driver.cuda.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return "";
  CUdevice current = -1;
  if (driver.cuda.cuCtxGetDevice(&current) != CUDA_SUCCESS || (site.device >= 0 && site.device != current)) return "";
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) return "";
  return "; " + FormatBytes(free_bytes) + " of " + FormatBytes(total_bytes) + " are free";
}

// Such as "NCCL error 5 (ncclInvalidUsage): invalid usage".
std::string DescribeNcclError(const NcclLibrary& nccl, ncclResult_t result) {
  std::string text = "NCCL error " + std::to_string(result);
  if (const size_t place = static_cast<size_t>(result); place < std::size(kNcclNames)) {
    text += std::string(" (") + kNcclNames[place] + ")";
  }
  if (nccl.ncclGetErrorString != nullptr) text += ": " + std::string(nccl.ncclGetErrorString(result));
  return text;
}

// NCCL's text for this failure. Empty where the text is older than the call: then it is about another failure.
const char* NewErrorText(const Driver& driver, ncclResult_t result, const CallSite& site, ncclComm_t communicator) {
  const NcclLibrary& nccl = driver.nccl;
  const char* const last = nccl.ncclGetLastError == nullptr ? nullptr : nccl.ncclGetLastError(communicator);
  if (last == nullptr || last[0] == '\0') return "";
  LastErrorText& noted = *driver.last_error_text;
  const size_t text = std::hash<std::string_view>()(last);
  const size_t call =
      result == ncclSuccess ? 0 : std::hash<std::string>()(std::string(site.call) + std::to_string(result));
  const bool known = noted.text.exchange(text) == text;
  if (known && (result == ncclSuccess || noted.call.load() != call)) return "";
  noted.call.store(call);
  return last;
}

StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return StatusCode::kOutOfMemory;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return StatusCode::kNotSupported;
    case CUDA_ERROR_NO_DEVICE:
      return StatusCode::kNotFound;
    default:
      return StatusCode::kDriverError;
  }
}

}  // namespace

Status CheckCuda(const Driver& driver, CUresult result, const CallSite& site) {
  if (result == CUDA_SUCCESS) return Status();
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuda.cuGetErrorName(result, &name);
  driver.cuda.cuGetErrorString(result, &text);
  std::string error = name == nullptr ? "CUDA error " + std::to_string(result) : name;
  if (text != nullptr) error += " (" + std::string(text) + ")";
  const std::string left = result == CUDA_ERROR_OUT_OF_MEMORY ? DescribeMemoryLeft(driver, site) : "";
  return Status(CodeOf(result), DescribeCall(site, error) + left + DescribeCause(kCauses, result, site));
}

void NoteOldErrorText(const Driver& driver) { NewErrorText(driver, ncclSuccess, {}, nullptr); }

Status CheckNccl(const Driver& driver, ncclResult_t result, const CallSite& site, ncclComm_t communicator) {
  const char* const last = NewErrorText(driver, result, site, communicator);
  if (result == ncclSuccess) return Status();
  std::string error = DescribeNcclError(driver.nccl, result);
  if (*last != '\0') error += " (" + std::string(last) + ")";
  return Status(StatusCode::kCommunicatorError, DescribeCall(site, error) + "; NCCL " +
                                                    FormatNcclVersion(driver.nccl.version) +
                                                    DescribeCause(kNcclCauses, result, site));
}

bool IsSticky(CUresult result) {
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

}  // namespace commpool::internal
