#include "src/emulator/nccl/communicator.h"

#include <unistd.h>

#include <fstream>
#include <functional>
#include <utility>

#include "src/emulator/description.h"
#include "src/emulator/nccl/exchange.h"
#include "src/emulator/nccl/host_failure.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

namespace {

Deadline CallDeadline() { return DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds())); }

// Returns the same number in all processes of one running host. NCCL too identifies a host by its name and boot, unless
// the variable does (NCCL 2.28.9, src/misc/utils.cc).
uint64_t HostIdentity() {
  const char* const named = NcclVariable("NCCL_HOSTID");
  if (named != nullptr && *named != '\0') return std::hash<std::string>()(named);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return std::hash<std::string>()(HostName() + "/" + boot);
}

uint64_t BusOf(int device) {
  const DriverFunctions& driver = GetDriver();
  int domain = 0;
  int bus = 0;
  int slot = 0;
  driver.cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
  driver.cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
  driver.cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
  return static_cast<uint64_t>(domain) << 20 | static_cast<uint64_t>(bus) << 12 | static_cast<uint64_t>(slot) << 4;
}

// The value is valid: the driver has parsed it before.
const emulator::Description& MachineHere() {
  static const emulator::Description machine = emulator::Description::OfEnvironment().value();
  return machine;
}

// NCCL refuses two ranks on one device, and ranks with different versions, at initialisation (NCCL 2.28.9,
// src/init.cc).
ncclResult_t CheckPeers(const std::vector<PeerInfo>& peers) {
  for (const PeerInfo& a : peers) {
    if (a.version != peers[0].version) {
      COMMPOOL_NCCL_WARN("Mismatched NCCL version detected : rank %d version %d rank %d version %d", 0,
                         peers[0].version, a.rank, a.version);
      return ncclInvalidUsage;
    }
    for (const PeerInfo& b : peers) {
      if (a.rank >= b.rank || a.host != b.host || a.bus != b.bus || a.device != b.device) continue;
      COMMPOOL_NCCL_WARN("Duplicate GPU detected : rank %d and rank %d both on CUDA device %lx", a.rank, b.rank,
                         static_cast<unsigned long>(a.bus));
      return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

// Says whether every rank's device reaches every other's: all are linked, and on one host or on linked ones.
bool AllDirect(const std::vector<PeerInfo>& peers) {
  const bool linked_hosts = TextSetting("hosts", "apart") == "linked";
  for (const PeerInfo& a : peers) {
    if (a.host != peers[0].host && !linked_hosts) return false;
    for (const PeerInfo& b : peers) {
      if (!MachineHere().Linked(MachineHere().DeviceOf(a.device), MachineHere().DeviceOf(b.device))) return false;
    }
  }
  return true;
}

WindowSupport ChooseWindowSupport(bool all_direct) {
  if (TextSetting("windows", "yes") == "no") return WindowSupport::kNullWindow;
  const bool by_network = TextSetting("hosts", "apart") == "network" && ClaimedVersion() >= kFirstWithNetworkWindows;
  const bool reached = all_direct || by_network;
  if (reached && !IsSwitchedOff("NCCL_WIN_ENABLE")) return WindowSupport::kSupported;
  // Before 2.29.2 a local handle stands for a window; from then on the window is null (src/dev_runtime.cc of 2.28.9 and
  // 2.30.7).
  return ClaimedVersion() < kFirstWithNullWindows ? WindowSupport::kLocalHandle : WindowSupport::kNullWindow;
}

}  // namespace

ncclResult_t EmulatedCommunicator::Create(const Place& place, const ncclUniqueId& id,
                                          std::shared_ptr<EmulatedCommunicator>* created) {
  const auto& [ranks, rank, device, configuration, async, call, shared_memory] = place;
  CUcontext context = nullptr;
  const DriverFunctions& driver = GetDriver();
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  const CurrentContext guard(context);
  PeerInfo own;
  own.rank = rank;
  own.ranks = ranks;
  own.host = HostIdentity();
  own.process = getpid();
  own.device = MachineHere().NumberOf(device);
  own.bus = BusOf(device);
  own.version = ClaimedVersion();
  const auto magic = static_cast<unsigned long long>(MagicOf(id));
  Result<Membership> membership = Join(id, own, CallDeadline());
  ncclResult_t result = ncclSuccess;
  if (!membership.ok()) {
    COMMPOOL_NCCL_WARN("rank %d of %d could not join: %s", rank, ranks, membership.status().message().c_str());
    driver.commpoolEmulatorReport(
        "communicator not initialised by all ranks",
        ("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ": " + membership.status().message())
            .c_str());
    result = ncclRemoteError;
  } else {
    result = CheckPeers(membership->peers);
  }
  if (result != ncclSuccess) {
    driver.cuDevicePrimaryCtxRelease(device);
    return result;
  }
  std::shared_ptr<OwnMemory> memory = shared_memory;
  if (memory != nullptr) {
    memory->Join();
  } else if (ClaimedVersion() >= kFirstWithSuspension) {
    if (result = OwnMemory::Make(device, &memory); result != ncclSuccess) {
      driver.cuDevicePrimaryCtxRelease(device);
      return result;
    }
  }
  auto communicator = std::make_shared<EmulatedCommunicator>(place, context, std::move(*membership), std::move(memory));
  LogInfo(Subject::kInit, "%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %lx commId 0x%llx - Init COMPLETE",
          call, static_cast<void*>(communicator->handle()), rank, ranks, device, own.device,
          static_cast<unsigned long>(own.bus), magic);
  result = OrSystemError([&] {
    communicator->thread_ = std::thread([communicator] { communicator->Run(); });
    return ncclSuccess;
  });
  if (result != ncclSuccess) {
    if (communicator->memory_ != nullptr) communicator->memory_->Leave();
    driver.cuDevicePrimaryCtxRelease(device);
    return result;
  }
  *created = std::move(communicator);
  return ncclSuccess;
}

EmulatedCommunicator::EmulatedCommunicator(const Place& place, CUcontext context, Membership membership,
                                           std::shared_ptr<OwnMemory> memory)
    : ranks_(place.ranks),
      rank_(place.rank),
      device_(place.device),
      context_(context),
      configuration_(place.configuration),
      memory_(std::move(memory)),
      async_(place.async),
      peers_(std::move(membership.peers)),
      data_(std::move(membership.data)),
      control_(std::move(membership.control)),
      places_(PlacesOn(place.device)),
      records_(ClaimedVersion() < kFirstWithSegmentedWindows ? 72 : 88) {
  all_direct_ = AllDirect(peers_);
  window_support_ = ChooseWindowSupport(all_direct_);
  const std::string description =
      "rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + " on device " + std::to_string(device_);
  GetDriver().commpoolEmulatorNoteResource("NCCL communicator", this, description.c_str());
}

EmulatedCommunicator::~EmulatedCommunicator() = default;

bool EmulatedCommunicator::Enter(const char* call) {
  const int self = gettid();
  int expected = 0;
  if (user_.load() != self && !user_.compare_exchange_strong(expected, self)) {
    // NCCL's user guide: only one thread at a time may use a communicator, also for registration (NVIDIA/nccl#2184).
    GetDriver().commpoolEmulatorReport(
        "communicator used by two threads at once",
        ("rank " + std::to_string(rank_) + ": " + call + " on thread " + std::to_string(self) + " while thread " +
         std::to_string(expected) + " is in a call")
            .c_str());
    return false;
  }
  ++user_depth_;
  return true;
}

void EmulatedCommunicator::Leave() {
  if (--user_depth_ == 0) user_.store(0);
}

ncclResult_t EmulatedCommunicator::Finalize() {
  if (finalized_) return async_error();
  finalized_ = true;
  if (stopped_.load()) return ncclSuccess;
  if (async_error() != ncclSuccess) queue_.Close();
  if (!queue_.WaitUntilIdle(CallDeadline())) {
    if (aborted_.load()) return ncclInternalError;
    GetDriver().commpoolEmulatorReport("communicator finalized with collectives that never ended",
                                       ("rank " + std::to_string(rank_)).c_str());
    return ncclInternalError;
  }
  return async_error();
}

void EmulatedCommunicator::ReportLeftovers() const {
  const size_t windows = windows_.windows().size();
  const size_t locals = registrations_.slots().size();
  // 2.29.7 ends leftover windows by itself. Local registrations would be used after they are freed (src/init.cc;
  // NVIDIA/nccl#1115).
  const bool windows_matter = windows > 0 && ClaimedVersion() < kFirstThatDropsWindows;
  if (!windows_matter && (locals == 0 || windows > 0)) return;
  GetDriver().commpoolEmulatorReport("communicator destroyed with live registrations",
                                     ("rank " + std::to_string(rank_) + ": " + std::to_string(windows) + " windows, " +
                                      std::to_string(locals) + " registered ranges")
                                         .c_str());
}

ncclResult_t EmulatedCommunicator::Destroy() {
  const ncclResult_t result = Finalize();
  ReportLeftovers();
  DropRegistrations();
  JoinThread();
  return result == ncclRemoteError ? ncclSuccess : result;
}

void EmulatedCommunicator::Interrupt() {
  aborted_.store(true);
  data_.Shutdown();
  control_.Shutdown();
  queue_.Interrupt();
}

void EmulatedCommunicator::Abort() {
  Interrupt();
  KeepMemoryOfWindows();
  DropRegistrations();
  JoinThread();
}

void EmulatedCommunicator::JoinThread() {
  const DriverFunctions& driver = GetDriver();
  queue_.Close();
  // A collective that never becomes the first of its stream keeps the communicator. Then the thread goes on.
  if (queue_.WaitUntilNothingRuns()) {
    thread_.join();
  } else {
    thread_.detach();
  }
  if (memory_ != nullptr) {
    const CurrentContext guard(context_);
    memory_->Leave();
  }
  driver.commpoolEmulatorForgetResource("NCCL communicator", this);
  driver.cuDevicePrimaryCtxRelease(device_);
}

}  // namespace commpool::internal::emulated_nccl
