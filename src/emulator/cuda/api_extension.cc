// The emulator's own functions (src/emulator/extension.h). api_announcements.cc has the ones that pools
// announce with.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: C on the outside

namespace {

// What an operation may not touch, with the block where one sleeps there, and the program's line where it is known.
void ReportNoAccess(Machine& machine, const std::string& operation, int device, const commpoolEmulatorRange& range) {
  const BlockTable& blocks = machine.races.blocks();
  const std::shared_ptr<const AnnouncedBlock> block = blocks.At(range.address);
  std::string details = operation + " on device " + std::to_string(device) + " declares " +
                        std::to_string(range.bytes) + " bytes that it may not touch";
  if (blocks.IsAsleep(range.address)) {
    details += ": their pool is asleep, wake() it first";
    if (block != nullptr) details += " (" + block->Describe() + ")";
  }
  if (PlaceOfThisThread() != nullptr) details += std::string("; issued at ") + PlaceOfThisThread();
  machine.logbook.Report("access that is not granted", details);
}

// Makes an operation with the declared ranges, or returns the error that a kernel would get.
CUresult Declare(Machine& machine, CUstream handle, const commpoolEmulatorAccess& access, CUstream_st** stream,
                 std::shared_ptr<Operation>* operation) {
  const CUresult found = FindStream(machine, handle, stream);
  if (found != CUDA_SUCCESS) return found;
  auto made = std::make_shared<Operation>();
  made->name = access.name == nullptr ? "kernel" : access.name;
  made->duration_us = access.duration_us;
  made->reads.assign(access.reads, access.reads + access.read_count);
  made->writes.assign(access.writes, access.writes + access.write_count);
  for (const auto* ranges : {&made->reads, &made->writes}) {
    const auto use = ranges == &made->writes ? Machine::Use::kWrite : Machine::Use::kRead;
    for (const commpoolEmulatorRange& range : *ranges) {
      const CUresult result = machine.CheckAccess(use, range, (*stream)->device);
      if (result == CUDA_SUCCESS) continue;
      ReportNoAccess(machine, made->name, (*stream)->device, range);
      return result;
    }
  }
  *operation = std::move(made);
  return CUDA_SUCCESS;
}

Operation::Start StartWith(commpoolEmulatorStart start, void* context) {
  return [=](commpoolEmulatorOperation running, const Pointers& reads, const Pointers& writes, double start_us) {
    start(context, running, reads.data(), writes.data(), start_us);
  };
}

CUresult& FailureOfThisKernel() {
  thread_local CUresult failure = CUDA_SUCCESS;
  return failure;
}

// Writes lines into a caller's buffer: it truncates them, and always terminates the text.
size_t WriteLines(const std::vector<std::string>& lines, char* buffer, size_t capacity) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  if (buffer != nullptr && capacity != 0) {
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return lines.size();
}

template <typename Body>
auto Locked(Body body) {
  Machine& machine = Machine::Get();
  std::unique_lock<std::mutex> lock(machine.mutex);
  return body(machine);
}

}  // namespace

CUresult commpoolEmulatorLaunch(CUstream handle, const commpoolEmulatorAccess* access, commpoolEmulatorKernel kernel,
                                void* context) {
  return commpoolEmulatorLaunchKept(handle, access, kernel, context, [](void*) {});
}

CUresult commpoolEmulatorLaunchKept(CUstream handle, const commpoolEmulatorAccess* access,
                                    commpoolEmulatorKernel kernel, void* context, void (*end)(void*)) {
  const std::shared_ptr<void> kept(context, end);
  return Call("commpoolEmulatorLaunch", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (access == nullptr || kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUstream_st* stream = nullptr;
    std::shared_ptr<Operation> operation;
    const CUresult result = Declare(machine, handle, *access, &stream, &operation);
    if (result != CUDA_SUCCESS) return result;
    operation->pace = Operation::Pace::kMayBlock;
    operation->run = [kernel, kept, device = stream->device](const Pointers& reads, const Pointers& writes) {
      FailureOfThisKernel() = CUDA_SUCCESS;
      kernel(kept.get(), reads.data(), writes.data());
      if (FailureOfThisKernel() == CUDA_SUCCESS) return;
      Locked([&](Machine& own) {
        CUctx_st& lost = *own.contexts[static_cast<size_t>(device)];
        if (lost.sticky == CUDA_SUCCESS) lost.sticky = FailureOfThisKernel();
      });
    };
    return machine.Submit(stream, std::move(operation));
  });
}

void commpoolEmulatorKernelFailed(CUresult result) { FailureOfThisKernel() = result; }

const char* commpoolEmulatorIssuedAt(const char* place) { return std::exchange(PlaceOfThisThread(), place); }

CUresult commpoolEmulatorEnqueue(CUstream handle, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context) {
  return Call("commpoolEmulatorEnqueue", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (access == nullptr || start == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUstream_st* stream = nullptr;
    std::shared_ptr<Operation> operation;
    const CUresult result = Declare(machine, handle, *access, &stream, &operation);
    if (result != CUDA_SUCCESS) return result;
    if (machine.captures.Of(stream) != nullptr) {
      machine.logbook.Report("capture of what cannot be repeated", operation->name);
      return machine.captures.RefuseCaptured(stream);
    }
    operation->start = StartWith(start, context);
    return machine.Submit(stream, std::move(operation));
  });
}

CUresult commpoolEmulatorCapture(CUstream handle, const commpoolEmulatorAccess* access, commpoolEmulatorStart start,
                                 void* context, const commpoolEmulatorReplay* replay) {
  return Call("commpoolEmulatorCapture", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (access == nullptr || start == nullptr || replay == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUstream_st* stream = nullptr;
    std::shared_ptr<Operation> operation;
    const CUresult result = Declare(machine, handle, *access, &stream, &operation);
    if (result != CUDA_SUCCESS) return result;
    const StreamCapture* const capture = machine.captures.Of(stream);
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;  // the caller still owns `context`
    if (replay->may_hold_memory != 0) {
      operation->captured_mappings = machine.addresses.NumbersUnder(operation->reads, operation->writes);
    }
    operation->is_kernel = replay->is_kernel != 0;
    const std::shared_ptr<void> owned(context, replay->end);
    operation->repeat = [start, owned, again = replay->again]() -> Operation::Start {
      void* const repeated = again(owned.get());
      return repeated == nullptr ? Operation::Start() : StartWith(start, repeated);
    };
    return machine.Submit(stream, std::move(operation));
  });
}

void commpoolEmulatorComplete(commpoolEmulatorOperation operation, double end_us, CUresult result) {
  Locked([&](Machine& machine) { machine.scheduler.Complete(operation, end_us, result); });
}

size_t commpoolEmulatorClock(commpoolEmulatorOperation operation, void* buffer, size_t capacity) {
  return Locked([&](Machine& machine) {
    const std::vector<uint64_t> words = machine.races.Contribution(*operation->operation).ToWords();
    const size_t bytes = words.size() * sizeof(uint64_t);
    if (bytes != 0 && bytes <= capacity) std::memcpy(buffer, words.data(), bytes);
    return bytes;
  });
}

void commpoolEmulatorJoinClock(commpoolEmulatorOperation operation, const void* clock, size_t bytes) {
  Locked([&](Machine&) {
    std::vector<uint64_t> words(bytes / sizeof(uint64_t));
    if (!words.empty()) std::memcpy(words.data(), clock, words.size() * sizeof(uint64_t));
    operation->operation->clock.Join(Clock::FromWords(words.data(), words.size()));
  });
}

const char* commpoolEmulatorSetting(const char* key) { return Machine::Get().description.Value(key); }

double commpoolEmulatorNow() {
  return Locked([](Machine& machine) { return machine.scheduler.host_time_us; });
}

void commpoolEmulatorAdvance(double microseconds) {
  Locked([&](Machine& machine) { machine.scheduler.host_time_us += microseconds; });
}

CUresult commpoolEmulatorFindMapping(CUdeviceptr address, commpoolEmulatorMapping* mapping) {
  return Locked([&](Machine& machine) {
    const MappedRange* const found = machine.addresses.Find(address);
    if (mapping == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUmemAllocationProp& properties = found->physical->properties;
    const std::optional<AsyncMemory::Allocation> ordered = machine.async_memory.Find(address);
    *mapping = {ordered ? ordered->address : found->address,
                ordered ? ordered->bytes : found->bytes,
                found->linear || found->pinned_host || found->of_pool ? 0 : found->physical->identity,
                static_cast<int>(properties.requestedHandleTypes),
                static_cast<int>(properties.location.type),
                properties.location.id};
    return CUDA_SUCCESS;
  });
}

CUresult commpoolEmulatorHold(CUdeviceptr address, size_t bytes, const char* holder) {
  Locked([&](Machine& machine) { machine.logbook.Hold(address, bytes, holder); });
  return CUDA_SUCCESS;
}

CUresult commpoolEmulatorUnhold(CUdeviceptr address, size_t bytes) {
  Locked([&](Machine& machine) { machine.logbook.Unhold(address, bytes); });
  return CUDA_SUCCESS;
}

void commpoolEmulatorNoteResource(const char* kind, const void* identity, const char* description) {
  Locked([&](Machine& machine) { machine.logbook.Note(kind, identity, description); });
}

void commpoolEmulatorForgetResource(const char* kind, const void* identity) {
  Locked([&](Machine& machine) { machine.logbook.Forget(kind, identity); });
}

void commpoolEmulatorReport(const char* rule, const char* details) {
  Locked([&](Machine& machine) { machine.logbook.Report(rule, details); });
}

void commpoolEmulatorInjectFault(const char* call, int skip, int count, int result) {
  Locked([&](Machine& machine) { machine.logbook.Inject({call, skip, result, count}); });
}

void commpoolEmulatorClearFaults() {
  Locked([](Machine& machine) { machine.logbook.ClearFaults(); });
}

int commpoolEmulatorEnterCall(const char* call) {
  return Locked([&](Machine& machine) { return machine.logbook.Enter(call).value_or(-1); });
}

uint64_t commpoolEmulatorCallCount(const char* call) {
  return Locked([&](Machine& machine) { return machine.logbook.Count(call); });
}

size_t commpoolEmulatorLeaks(char* buffer, size_t capacity) {
  return Locked([&](Machine& machine) {
    std::vector<std::string> lines = machine.addresses.Describe();
    for (const auto& [handle, entry] : machine.handles) {
      lines.push_back("physical memory of " + std::to_string(entry.physical->bytes) + " bytes, " +
                      std::to_string(entry.references) + " references");
    }
    for (const auto& more :
         {machine.scheduler.Describe(), machine.logbook.Resources(), machine.graphs.Describe(),
          machine.captures.Describe(), machine.user_objects.Describe(), machine.multicasts.Describe()}) {
      lines.insert(lines.end(), more.begin(), more.end());
    }
    for (const auto& context : machine.contexts) {
      if (context->retained > 0) {
        lines.push_back("primary context of device " + std::to_string(context->device) + ", retained " +
                        std::to_string(context->retained) + " times");
      }
    }
    return WriteLines(lines, buffer, capacity);
  });
}

size_t commpoolEmulatorReports(char* buffer, size_t capacity) {
  return Locked([&](Machine& machine) { return WriteLines(machine.logbook.reports(), buffer, capacity); });
}

void commpoolEmulatorClearReports() {
  Locked([](Machine& machine) { machine.logbook.ClearReports(); });
}
