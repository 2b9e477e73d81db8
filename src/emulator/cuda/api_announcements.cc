// What pools announce: src/emulator/extension.h.
#include <memory>
#include <string>
#include <utility>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: C on the outside

namespace {

template <typename Body>
auto Locked(Body body) {
  Machine& machine = Machine::Get();
  std::unique_lock<std::mutex> lock(machine.mutex);
  return body(machine);
}

// Finds the stream that the calling thread means; null if the handle is unknown.
constexpr uintptr_t kOfNoStream = 8;

CUstream_st* Meant(Machine& machine, CUstream handle) {
  if (reinterpret_cast<uintptr_t>(handle) == kOfNoStream) return nullptr;
  // a pool may report the end of a capture after its stream was destroyed
  if (machine.scheduler.IsDead(handle)) return nullptr;
  return machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
}

}  // namespace

void commpoolEmulatorBlockAllocated(CUdeviceptr address, size_t bytes, CUstream handle, const char* pool) {
  Locked([&](Machine& machine) {
    if (!machine.races.on()) return;
    const CUstream_st* const stream = Meant(machine, handle);
    const std::string name = pool == nullptr ? "without a name" : pool;
    // What PyTorch's allocator takes from a pool is judged by what it hears, which begins with what the pool has heard.
    const bool also_pytorchs = CallStack::Capture().IsOf(Asker::kAllocator);
    if (also_pytorchs) machine.races.LetPyTorchsKnowWhatPoolsHave();
    const auto heard = also_pytorchs ? nullptr : machine.races.heard(Asker::kPools);
    machine.races.blocks().Allocated(address, bytes, stream == nullptr ? 0 : stream->id, name, heard);
    if (stream == nullptr || !IsUnannouncedCapture(machine, stream)) return;
    machine.logbook.Report("unannounced capture", "pool " + name + " serves stream " + std::to_string(stream->id) +
                                                      " of device " + std::to_string(stream->device) +
                                                      ", which captures, with a block of " + std::to_string(bytes) +
                                                      " bytes, and was not told of the capture; allocated at " +
                                                      CallStack::Capture().Describe());
  });
}

void commpoolEmulatorBlockFreed(CUdeviceptr address) {
  Locked([&](Machine& machine) { machine.races.blocks().Freed(address); });
}

void commpoolEmulatorBlockBegins(CUdeviceptr address, size_t bytes, CUstream handle, int device, const char* pool) {
  Locked([&](Machine& machine) {
    if (!machine.races.on() || machine.scheduler.IsDead(handle)) return;
    if (pool == nullptr) return static_cast<void>(machine.races.blocks().Forget(address, bytes));
    // PyTorch lists the blocks of a pool that is its whole allocator, which the pool has told of.
    const auto block = machine.races.blocks().At(address);
    if (block != nullptr && block->pool != pool && !block->freed) return;
    CUstream_st* const stream = machine.scheduler.Resolve(handle, device);
    const uint64_t number = stream == nullptr ? 0 : stream->id;
    machine.races.blocks().Allocated(address, bytes, number, pool, machine.races.heard(Asker::kAllocator));
    if (stream == nullptr) return;
    // Memory that serves again is judged by what uses it.
    std::erase_if(stream->ended, [&](const auto& ended) {
      return ended->address < address + bytes && address < ended->address + ended->bytes;
    });
  });
}

void commpoolEmulatorBlockEnds(CUdeviceptr address, CUstream handle, int device) {
  Locked([&](Machine& machine) {
    if (!machine.races.on() || machine.scheduler.IsDead(handle)) return;
    CUstream_st* const stream = machine.scheduler.Resolve(handle, device);
    if (stream == nullptr || machine.captures.Of(stream) != nullptr) return;
    const auto block = machine.races.blocks().Ended(address, machine.races.heard(Asker::kAllocator));
    if (block != nullptr) stream->ended.push_back(block);
  });
}

void commpoolEmulatorSegmentSleeps(CUdeviceptr address, size_t bytes, int asleep) {
  Locked([&](Machine& machine) { machine.races.blocks().SetAsleep(address, bytes, asleep != 0); });
}

void commpoolEmulatorCaptureAnnounced(CUstream handle, int announced) {
  Locked([&](Machine& machine) {
    CUstream_st* const stream = Meant(machine, handle);
    if (stream != nullptr) machine.captures.Announce(stream, announced != 0);
  });
}

int commpoolEmulatorIsUnannouncedCapture(CUstream handle) {
  return Locked([&](Machine& machine) {
    const CUstream_st* const stream = Meant(machine, handle);
    return stream != nullptr && IsUnannouncedCapture(machine, stream) ? 1 : 0;
  });
}
