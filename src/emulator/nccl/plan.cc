// The part of a communicator that decides how a collective runs, as NCCL does, and logs it.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "src/emulator/nccl/collective_times.h"
#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/kernel_choice.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

namespace {

// Says whether the `bytes` from `place` on are in one mapping.
bool Covers(const commpoolEmulatorMapping& mapping, const void* place, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(place);
  return mapping.base <= address && address + bytes <= mapping.base + mapping.bytes;
}

PlaceInWindow PlaceOf(const EmulatedWindow& window, const void* buffer) {
  const uint64_t offset = reinterpret_cast<uintptr_t>(buffer) - window.buffer;
  return {window.place.record, offset, window.PlaceOf(offset)};
}

}  // namespace

Route EmulatedCommunicator::PlanRoute(const CollectiveRequest& request, CollectivePlan* plan) const {
  const EmulatedWindow* send = windows_.Find(request.send);
  const EmulatedWindow* receive = windows_.Find(request.receive);
  if (send == nullptr || receive == nullptr) return Route::kBuffers;
  if ((send->flags & receive->flags & NCCL_WIN_COLL_SYMMETRIC) == 0) return Route::kBuffers;
  // Windows in host memory are only for use by devices, from 2.30.3 on (NCCL's user guide).
  if (!send->on_device || !receive->on_device) return Route::kBuffers;
  const bool copies = all_direct_ && UsesCopyEngines(request.kind, configuration_.cta_policy, ClaimedVersion());
  // Over the network none all-reduces: they gather since 2.29.2, and reduce-scatter since 2.29.7.
  const bool has_kernel = (all_direct_ || request.kind != CollectiveKind::kAllReduce) &&
                          HasSymmetricKernel(request.kind, request.type, request.operation, ClaimedVersion());
  if (!copies && !has_kernel) return Route::kBuffers;
  plan->send = PlaceOf(*send, request.send);
  plan->receive = PlaceOf(*receive, request.receive);
  return copies ? Route::kCopyEngines : Route::kSymmetricKernel;
}

CollectivePlan EmulatedCommunicator::Plan(const CollectiveRequest& request, uint64_t sequence) {
  if (request.kind == CollectiveKind::kTransfers) return PlanTransfers(request);
  const size_t bytes = request.count * ElementBytes(request.type);
  const size_t result_bytes = ResultBytes(request.kind, request.count, ElementBytes(request.type), ranks_);
  const char* const name = CollectiveName(request.kind);
  LogInfo(Subject::kCollective,
          "%s: opCount %lx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
          name, static_cast<unsigned long>(sequence == 0 ? 0 : sequence - 1), request.send, request.receive,
          request.count, request.type, request.operation, request.root, static_cast<const void*>(this), ranks_,
          static_cast<const void*>(request.stream));
  CollectivePlan plan;
  if (ranks_ > 1) plan.route = PlanRoute(request, &plan);
  plan.duration_us = CollectiveMicroseconds(request.kind, result_bytes, ranks_, plan.route != Route::kBuffers);
  if (plan.route == Route::kCopyEngines) TakePlaceOfCopies();
  if (plan.route == Route::kBuffers) {
    LogOrdinary(request, bytes, result_bytes);
  } else if (rank_ == 0 && plan.route == Route::kSymmetricKernel) {
    constexpr int kThreads = 512;
    LogInfo(Subject::kTuning, "%s [Symmetric]: %ld Bytes -> Kernel %s nchannels %d nthreads %d nWorks %d", name,
            static_cast<long>(bytes), SymmetricKernelName(request.kind, bytes, ranks_), ChooseChannels(result_bytes),
            kThreads, 1);
  }
  return plan;
}

void EmulatedCommunicator::LogOrdinary(const CollectiveRequest& request, size_t bytes, size_t result_bytes) {
  if (ranks_ == 1) return;
  const Protocol protocol = ChooseProtocol(result_bytes, std::getenv("NCCL_PROTO"));
  int channels = ChooseChannels(result_bytes);
  constexpr int kRegisteredChannels = 16;
  if (protocol == Protocol::kSimple && UseLocalRegistration(request, result_bytes)) {
    channels = std::min(channels, kRegisteredChannels);
  }
  if (rank_ != 0) return;
  LogInfo(Subject::kTuning, "%s: %ld Bytes -> Algo %s proto %s channel{Lo..Hi}={%d..%d}", CollectiveName(request.kind),
          static_cast<long>(bytes), "RING", ProtocolName(protocol), 0, channels - 1);
}

// NCCL 2.28.9, src/register/coll_reg.cc: a ring uses a registered receive buffer if the devices are linked and on one
// host, and the protocol is Simple; but not for an all-reduce in place, a reduce or a reduce-scatter. One cuMem mapping
// must hold the buffer (src/transport/p2p.cc; NVIDIA/nccl#1820).
bool EmulatedCommunicator::UseLocalRegistration(const CollectiveRequest& request, size_t bytes) {
  const bool in_place = request.kind == CollectiveKind::kAllReduce && request.send == request.receive;
  const bool partial = request.kind == CollectiveKind::kReduce || request.kind == CollectiveKind::kReduceScatter;
  if (!all_direct_ || in_place || partial) return false;
  LocalRegistration* slot = registrations_.Find(request.receive, bytes);
  if (slot == nullptr) return false;
  commpoolEmulatorMapping mapping = {};
  const auto address = reinterpret_cast<CUdeviceptr>(request.receive);
  if (GetDriver().commpoolEmulatorFindMapping(address, &mapping) != CUDA_SUCCESS) return false;
  if (!Covers(mapping, request.receive, bytes)) return false;
  const bool shareable = mapping.physical != 0 && mapping.location_type == CU_MEM_LOCATION_TYPE_DEVICE &&
                         (mapping.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  if (!shareable) {
    LogInfo(Subject::kRegistration,
            "rank %d failed to IPC register userbuff %p buffSize %ld nPeers %d isLegacyIpc %d type %s", rank_,
            request.receive, static_cast<long>(bytes), ranks_ > 2 ? 2 : 1, -1, "POSIX_FD");
    return false;
  }
  ImportRegistration(*slot, request.receive, bytes, mapping);
  return true;
}

void EmulatedCommunicator::ImportRegistration(LocalRegistration& slot, const void* buffer, size_t bytes,
                                              const commpoolEmulatorMapping& mapping) {
  const auto size = static_cast<long>(bytes);
  void* const begin = reinterpret_cast<void*>(slot.begin);
  const std::set<int> neighbours = {(rank_ + ranks_ - 1) % ranks_, (rank_ + 1) % ranks_};
  for (const int peer : neighbours) {
    if (!slot.imported_by.insert(peer).second) {
      LogInfo(Subject::kRegistration,
              "rank %d - IPC reuse buffer %p size %ld (baseAddr %p size %ld) to peer %d regAddr %p", rank_, buffer,
              size, begin, static_cast<long>(slot.end - slot.begin), peer, begin);
      continue;
    }
    const auto whole = static_cast<long>(mapping.bytes);
    LogInfo(Subject::kRegistration, "rank %d - IPC registering buffer %p size %ld (baseAddr %p size %ld) to peer %d",
            rank_, buffer, size, begin, whole, peer);
    GetDriver().commpoolEmulatorAdvance(kFirstUseMicroseconds);
    LogInfo(Subject::kRegistration,
            "rank %d - IPC register buffer %p size %ld (baseAddr %p size %ld) to peer %d regAddr %p offsetOut %ld",
            rank_, buffer, size, begin, whole, peer, begin,
            static_cast<long>(reinterpret_cast<uintptr_t>(buffer) - slot.begin));
  }
}

}  // namespace commpool::internal::emulated_nccl
