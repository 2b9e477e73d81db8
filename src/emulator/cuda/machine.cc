#include "src/emulator/cuda/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace commpool::internal::emulator {

namespace {

// A program that mistypes its machine must not run on another machine.
Description ReadDescription() {
  Result<Description> description = Description::OfEnvironment();
  if (description.ok()) return *description;
  std::fprintf(stderr, "%s\n", description.status().message().c_str());
  std::exit(2);
}

void PrintLeaksAtExit() {
  static char buffer[1 << 16];
  if (Machine::Get().process == getpid() && commpoolEmulatorLeaks(buffer, sizeof(buffer)) != 0)
    std::fprintf(stderr, "commpool emulator: left at exit:\n%s", buffer);
}

}  // namespace

Machine& Machine::Get() {
  static Machine* const machine = new Machine();
  return *machine;
}

Machine::Machine()
    : description(ReadDescription()),
      logbook(description),
      races(logbook, description.races() ? RaceChecker::Mode::kOn : RaceChecker::Mode::kOff),
      scheduler(*this, description.devices(), description.seed()) {
  for (int device = 0; device < description.devices(); ++device) {
    contexts.push_back(std::make_unique<CUctx_st>());
    contexts.back()->device = device;
  }
  if (std::string(description.Value("report")) == "exit") std::atexit(PrintLeaksAtExit);
}

CUresult Machine::Initialise() {
  using Kind = BankLocation::Kind;
  if (description.devices() == 0) return CUDA_ERROR_NO_DEVICE;
  const auto make = [this](Kind kind, int count, uint64_t bytes, std::vector<std::shared_ptr<MemoryBank>>* banks) {
    while (banks->size() < static_cast<size_t>(count)) {
      const int place = static_cast<int>(banks->size());
      // Other processes may see other devices, so an import names the machine's number.
      const int32_t number = kind == Kind::kDevice ? description.NumberOf(place) : place;
      std::shared_ptr<MemoryBank> bank = MemoryBank::Make({kind, number}, bytes);
      if (bank == nullptr) return false;
      banks->push_back(std::move(bank));
    }
    return true;
  };
  const bool made = make(Kind::kDevice, description.devices(), description.device_bytes(), &device_banks) &&
                    make(Kind::kHostNuma, description.numa_nodes(), description.host_bytes(), &numa_banks);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  initialised = true;
  return CUDA_SUCCESS;
}

CUresult Machine::BankOf(const CUmemLocation& location, std::shared_ptr<MemoryBank>* bank) const {
  const auto pick = [&](const std::vector<std::shared_ptr<MemoryBank>>& banks, CUresult missing) {
    if (location.id < 0 || location.id >= static_cast<int>(banks.size())) return missing;
    *bank = banks[static_cast<size_t>(location.id)];
    return CUDA_SUCCESS;
  };
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return pick(device_banks, CUDA_ERROR_INVALID_DEVICE);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return pick(numa_banks, CUDA_ERROR_INVALID_VALUE);
    case CU_MEM_LOCATION_TYPE_HOST:
      *bank = numa_banks[0];
      return CUDA_SUCCESS;
    default:  // includes HOST_NUMA_CURRENT, as measured on hardware
      return CUDA_ERROR_INVALID_VALUE;
  }
}

BankLocation Machine::LocationOf(const MemoryBank& bank) const {
  BankLocation location = bank.location();
  if (location.kind == BankLocation::Kind::kDevice) location.id = description.DeviceOf(location.id);
  return location;
}

bool Machine::MayUse(Use use, const MappedRange& mapping, int device) const {
  if (use == Use::kRead && mapping.readers.contains(device)) return true;
  if (mapping.pinned_host || mapping.devices.contains(device)) return true;
  if (!mapping.linear) return false;
  const int owner = LocationOf(*mapping.physical->bank).id;
  return owner == device || contexts[static_cast<size_t>(device)]->enabled_peers.contains(owner);
}

bool Machine::MayCopy(Use use, const MappedRange& mapping, const std::vector<int>& copy_devices) const {
  return mapping.linear || mapping.cpu || std::any_of(copy_devices.begin(), copy_devices.end(), [&](int device) {
           return MayUse(use, mapping, device);
         });
}

CUresult Machine::CheckAccess(Use use, const commpoolEmulatorRange& range, int device,
                              const std::vector<int>& copy_devices) {
  const std::vector<MappedRange*> covering = addresses.Covering(range.address, range.bytes);
  if (covering.empty()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (const MappedRange* mapping : covering) {
    const bool granted = copy_devices.empty() ? MayUse(use, *mapping, device) : MayCopy(use, *mapping, copy_devices);
    if (!granted) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return CUDA_SUCCESS;
}

CUresult Machine::Submit(CUstream_st* stream, std::shared_ptr<Operation> operation) {
  if (captures.Of(stream) != nullptr) {
    races.Captured(*operation);
    return captures.AddNode(stream, std::move(*operation));
  }
  scheduler.Submit(stream, std::move(operation));
  return CUDA_SUCCESS;
}

void Machine::ReportIfInUse(CUdeviceptr address, uint64_t bytes, const char* what) {
  if (const char* name = scheduler.PendingUse(address, bytes)) {
    logbook.Report("memory in use", std::string(what) + " while " + name + " is still to run on it");
  }
  if (const std::optional<std::string> holder = logbook.HolderOf(address, bytes)) {
    logbook.Report("memory unmapped while registered", std::string(what) + " while held by " + *holder);
  }
  if (races.blocks().IsAsleep(address)) return;  // a replay over sleeping memory is reported elsewhere
  const char* const of_graph = graphs.UserOf(address, bytes);
  if (const char* name = of_graph != nullptr ? of_graph : captures.UserOf(address, bytes)) {
    logbook.Report("unmapped while a live graph uses it",
                   std::string(what) + " of memory that its node " + name + " names");
  }
}

CUctx_st*& CurrentContext() {
  thread_local CUctx_st* current = nullptr;
  return current;
}

}  // namespace commpool::internal::emulator
