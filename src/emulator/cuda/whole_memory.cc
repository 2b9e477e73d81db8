#include "src/emulator/cuda/whole_memory.h"

#include <utility>

namespace commpool::internal::emulator {

CUresult MapWhole(Machine& machine, std::shared_ptr<Physical> physical, Whole kind, uint64_t bytes,
                  CUdeviceptr* address) {
  CUdeviceptr range = 0;
  const uint64_t whole = physical->bytes;
  CUresult result = machine.addresses.Reserve(whole, machine.description.granularity(), &range);
  if (result != CUDA_SUCCESS) return result;
  result = machine.addresses.Map(range, whole, std::move(physical));
  if (result != CUDA_SUCCESS) return result;
  MappedRange& mapping = *machine.addresses.Find(range);
  mapping.linear = kind == Whole::kLinear;
  mapping.pinned_host = kind == Whole::kPinnedHost;
  mapping.requested = bytes;
  if (kind == Whole::kPinnedHost) machine.addresses.ShowToHost(mapping, true);
  *address = range;
  return CUDA_SUCCESS;
}

CUresult FreeWhole(Machine& machine, std::unique_lock<std::mutex>& lock, Whole kind, CUdeviceptr address,
                   const char* call) {
  const MappedRange* const mapping = machine.addresses.Find(address);
  if (mapping == nullptr || mapping->address != address ||
      !(kind == Whole::kLinear ? mapping->linear : mapping->pinned_host && !mapping->registered)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t bytes = mapping->bytes;
  // Hardware waits for the device in this call, so work may still run. Memory that is still registered is a mistake.
  while (machine.scheduler.PendingUse(address, bytes) != nullptr) {
    for (const auto& context : machine.contexts) machine.scheduler.WaitForDevice(lock, context->device);
  }
  machine.ReportIfInUse(address, bytes, call);
  if (kind == Whole::kLinear) {
    machine.races.HostWaitedFor(machine.scheduler.ClockOfDevice(machine.LocationOf(*mapping->physical->bank).id));
  }
  machine.races.blocks().Forget(address, bytes);
  machine.addresses.Unmap(address, bytes, AddressSpace::Leave::kNothing);
  return machine.addresses.Free(address, bytes);
}

}  // namespace commpool::internal::emulator
