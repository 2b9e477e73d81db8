// The reasons against NVLS, one function each, and the order in which they are asked.
#include "src/library/pool/nvls_eligibility.h"

#include <cstdlib>

#include "src/library/base/bytes.h"
#include "src/library/base/environment.h"
#include "src/library/base/try.h"
#include "src/library/driver/handles.h"
#include "src/library/registration/communicator.h"

namespace commpool::internal {

namespace {

// NCCL makes no multicast group for fewer GPUs (2.28.9: nvls.cc).
constexpr int kFewestRanks = 3;

// Reads the variable as NCCL does: any number, in C's notation.
bool IsSwitchedOff() {
  const std::string& value = Environment::Get().nccl_nvls_enable;
  char* end = nullptr;
  return !value.empty() && std::strtoll(value.c_str(), &end, 0) == 0 && *end == '\0';
}

// This function and the next two return a reason, or an empty text where nothing is in the way.
std::string WhyNotOnDevice(const Driver& driver, const Communicator& communicator) {
  int supported = 0;
  const CUresult result =
      driver.cuda.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, communicator.device);
  // An older driver does not know the attribute: that is a no.
  if (result == CUDA_SUCCESS && supported != 0) return "";
  return "device " + std::to_string(communicator.device) + " has no multicast: no NVSwitch, or a driver without it";
}

// NCCL binds the memory's handle to a multicast object. Other processes import that object, so the handle must be of a
// type that can be exported. Asks the driver, because memory of a program's own functions may be of any kind.
std::string WhyNotThisMemory(const Driver& driver, CUdeviceptr address) {
  CUmemAllocationProp properties = {};
  const PhysicalMemory memory = PhysicalMemory::At(driver, address, 0);
  if (!memory.valid() ||
      driver.cuda.cuMemGetAllocationPropertiesFromHandle(&properties, memory.get()) != CUDA_SUCCESS) {
    return "the memory has no handle that NCCL could bind: it was not made by cuMemCreate";
  }
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return "host memory has no multicast";
  const unsigned shareable = static_cast<unsigned>(properties.requestedHandleTypes) &
                             (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC);
  return shareable != 0 ? "" : "the memory was made without a handle type that other processes import";
}

// A multicast object binds whole granules. A segment that begins or ends inside of one cannot be bound.
std::string WhyNotThisPlace(const Driver& driver, const OwnedRange& segment, int ranks) {
  CUmulticastObjectProp multicast = {};
  multicast.numDevices = static_cast<unsigned>(ranks);
  multicast.size = segment.bytes;
  multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  const CUresult result =
      driver.cuda.cuMulticastGetGranularity(&granularity, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS || granularity == 0) {
    return "the driver names no multicast granularity for " + std::to_string(ranks) + " devices";
  }
  if (segment.address % granularity == 0 && segment.bytes % granularity == 0) return "";
  return "the segment, " + FormatBytes(segment.bytes) + ", does not begin and end at the multicast granularity, " +
         FormatBytes(granularity) + ": set granularity_bytes";
}

}  // namespace

// The first reason that is found is the answer. The C ABI calls it.
Result<std::string> WhyNoNvls(const Driver& driver, const AddressTable& addresses, const WindowBook& windows,
                              const NvlsQuestion& question) {
  if (question.bytes == 0) return InvalidArgument("a range of 0 bytes is asked about");
  const OwnedRange segment = COMMPOOL_TRY(addresses.RangeOf(question.address));
  const Communicator communicator = COMMPOOL_TRY(DescribeCommunicator(driver, question.communicator));

  // From what costs least to what asks the driver about the memory.
  if (IsSwitchedOff()) return std::string("NCCL_NVLS_ENABLE=0 switches it off");
  if (communicator.ranks < kFewestRanks) {
    return "the communicator has " + std::to_string(communicator.ranks) + " ranks: NCCL multicasts among " +
           std::to_string(kFewestRanks) + " GPUs or more";
  }
  std::string reason = WhyNotOnDevice(driver, communicator);
  if (!reason.empty()) return reason;
  const BlockOwner& pool = *segment.owner;
  if (!pool.symmetric()) return "pool " + pool.name() + " is not symmetric: ranks must have the range at equal offsets";
  if (question.bytes > segment.bytes - (question.address - segment.address)) {
    return "the range leaves its segment: " + FormatBytes(question.bytes) + " are asked about, " +
           FormatBytes(segment.bytes - (question.address - segment.address)) + " follow";
  }
  if (!windows.Find(question.communicator, question.address)) {
    return "pool " + pool.name() + " is not registered with this communicator: register_with() it";
  }
  reason = WhyNotThisMemory(driver, segment.address);
  if (reason.empty()) reason = WhyNotThisPlace(driver, segment, communicator.ranks);
  return reason;
}

}  // namespace commpool::internal
