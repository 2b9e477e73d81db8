#include "src/emulator/cuda/multicast.h"

#include <algorithm>

namespace commpool::internal::emulator {

namespace {

constexpr int kShareable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;

bool Fits(uint64_t offset, uint64_t bytes, uint64_t whole) { return offset <= whole && bytes <= whole - offset; }

}  // namespace

void Multicasts::Create(Handle handle, const CUmulticastObjectProp& properties) {
  objects_.emplace(handle, Object{properties, {}, {}});
}

CUresult Multicasts::AddDevice(Handle handle, int device, const Description& machine) {
  const auto found = objects_.find(handle);
  if (found == objects_.end()) return CUDA_ERROR_INVALID_VALUE;
  Object& object = found->second;
  if (object.devices.size() == object.properties.numDevices) return CUDA_ERROR_INVALID_VALUE;
  for (const int other : object.devices) {
    if (!machine.Linked(device, other)) return CUDA_ERROR_INVALID_DEVICE;
  }
  return object.devices.insert(device).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Checks in the order of the driver API's documentation of cuMulticastBindMem.
MulticastResult Multicasts::Bind(Handle handle, uint64_t offset, const MemoryPart& part, uint64_t granularity) {
  const auto found = objects_.find(handle);
  if (found == objects_.end()) return {CUDA_ERROR_INVALID_VALUE};
  Object& object = found->second;
  const CUmulticastObjectProp& properties = object.properties;
  if (part.bytes == 0 || (offset | part.offset | part.bytes) % granularity != 0) return {CUDA_ERROR_INVALID_VALUE};
  if (!Fits(offset, part.bytes, properties.size) || !Fits(part.offset, part.bytes, part.physical->bytes)) {
    return {CUDA_ERROR_INVALID_VALUE};
  }
  const CUmemLocation& location = part.physical->properties.location;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return {CUDA_ERROR_NOT_SUPPORTED};
  if (object.devices.size() < properties.numDevices) {
    // A real driver waits here for the missing devices. If this thread were to add them, it would wait for ever.
    return {CUDA_ERROR_SYSTEM_NOT_READY, "multicast memory bound before all devices were added",
            std::to_string(object.devices.size()) + " of " + std::to_string(properties.numDevices) + " devices"};
  }
  if (object.devices.count(location.id) == 0) return {CUDA_ERROR_INVALID_DEVICE};
  const bool shared = (properties.handleTypes & kShareable) != 0;
  const bool can_be_shared = (part.physical->properties.requestedHandleTypes & kShareable) != 0;
  if (shared && !can_be_shared) return {CUDA_ERROR_INVALID_VALUE};
  const bool taken = std::any_of(object.bound.begin(), object.bound.end(), [&](const Bound& bound) {
    return bound.device == location.id && bound.offset < offset + part.bytes &&
           offset < bound.offset + bound.part.bytes;
  });
  if (taken) return {CUDA_ERROR_INVALID_VALUE};
  object.bound.push_back({location.id, offset, part});
  return {};
}

MulticastResult Multicasts::Unbind(Handle handle, int device, uint64_t offset, uint64_t bytes, uint64_t granularity) {
  const auto found = objects_.find(handle);
  if (found == objects_.end() || found->second.devices.count(device) == 0) return {CUDA_ERROR_INVALID_VALUE};
  Object& object = found->second;
  if (bytes == 0 || (offset | bytes) % granularity != 0 || !Fits(offset, bytes, object.properties.size)) {
    return {CUDA_ERROR_INVALID_VALUE};
  }
  const auto place = std::find_if(object.bound.begin(), object.bound.end(), [&](const Bound& bound) {
    return bound.device == device && bound.offset == offset && bound.part.bytes == bytes;
  });
  if (place == object.bound.end()) {
    return {CUDA_ERROR_INVALID_VALUE, "multicast memory unbound otherwise than it was bound",
            std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of device " + std::to_string(device)};
  }
  object.bound.erase(place);
  return {};
}

bool Multicasts::Release(Handle handle) { return objects_.erase(handle) == 1; }

std::vector<std::string> Multicasts::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [handle, object] : objects_) {
    lines.push_back("multicast object of " + std::to_string(object.properties.size) + " bytes, " +
                    std::to_string(object.bound.size()) + " parts bound");
  }
  return lines;
}

}  // namespace commpool::internal::emulator
