// The part of a communicator that checks and launches a collective on the calling thread.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

namespace {

// The bytes that this rank sends and receives; 0 for an unused buffer. Nothing if they do not fit into 64 bits.
struct BufferBytes {
  size_t send;
  size_t receive;
};

std::optional<BufferBytes> BytesOf(const CollectiveRequest& request, int rank, int ranks) {
  const std::optional<uint64_t> share = CheckedMultiply(request.count, ElementBytes(request.type));
  if (!share) return std::nullopt;
  const std::optional<uint64_t> whole = CheckedMultiply(*share, static_cast<uint64_t>(ranks));
  const uint64_t of_root = rank == request.root ? *share : 0;
  switch (request.kind) {
    case CollectiveKind::kAllGather:
      return whole ? std::optional(BufferBytes{*share, *whole}) : std::nullopt;
    case CollectiveKind::kReduceScatter:
      return whole ? std::optional(BufferBytes{*whole, *share}) : std::nullopt;
    case CollectiveKind::kBroadcast:
      return BufferBytes{of_root, *share};
    case CollectiveKind::kReduce:
      return BufferBytes{*share, of_root};
    default:
      return BufferBytes{*share, *share};
  }
}

commpoolEmulatorRange RangeOf(const void* buffer, size_t bytes) {
  return {reinterpret_cast<CUdeviceptr>(buffer), bytes};
}

// The ranges that an operation declares, in the order of PendingCollective's host pointers.
struct Ranges {
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
};

Ranges RangesOf(const CollectiveRequest& request, int rank, int ranks) {
  Ranges ranges;
  for (const PeerTransfer& transfer : request.transfers) {
    auto& side = transfer.direction == PeerTransfer::Direction::kSend ? ranges.reads : ranges.writes;
    side.push_back(RangeOf(transfer.buffer, transfer.count * ElementBytes(transfer.type)));
  }
  if (request.kind == CollectiveKind::kTransfers) return ranges;
  const BufferBytes bytes = *BytesOf(request, rank, ranks);
  if (bytes.send > 0) ranges.reads.push_back(RangeOf(request.send, bytes.send));
  if (bytes.receive > 0) ranges.writes.push_back(RangeOf(request.receive, bytes.receive));
  if (request.device_scalar != nullptr) {
    ranges.reads.push_back(RangeOf(request.device_scalar, ElementBytes(request.type)));
  }
  return ranges;
}

ncclResult_t ResultOf(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return ncclSuccess;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return ncclInvalidArgument;
    default:
      return ncclUnhandledCudaError;
  }
}

}  // namespace

void StartCollective(void* context, commpoolEmulatorOperation operation, const void* const* reads, void* const* writes,
                     double start_us) {
  std::unique_ptr<PendingCollective> pending(static_cast<PendingCollective*>(context));
  pending->operation = operation;
  std::copy_n(reads, pending->reads.size(), pending->reads.begin());
  std::copy_n(writes, pending->writes.size(), pending->writes.begin());
  pending->start_us = start_us;
  EmulatedCommunicator& communicator = *pending->communicator;
  communicator.queue_.Post(std::move(pending));
}

ncclResult_t EmulatedCommunicator::CheckBuffer(const char* name, const void* buffer, size_t bytes) const {
  if (buffer == nullptr) {
    COMMPOOL_NCCL_WARN("rank %d: %s argument is NULL", rank_, name);
    return ncclInvalidArgument;
  }
  commpoolEmulatorMapping mapping = {};
  const auto address = reinterpret_cast<CUdeviceptr>(buffer);
  if (GetDriver().commpoolEmulatorFindMapping(address, &mapping) != CUDA_SUCCESS) {
    COMMPOOL_NCCL_WARN("rank %d: %s %p (%zu bytes) is not device memory", rank_, name, buffer, bytes);
    return ncclInvalidArgument;
  }
  if (mapping.location_type == CU_MEM_LOCATION_TYPE_DEVICE && mapping.location_id != device_) {
    COMMPOOL_NCCL_WARN("rank %d: %s %p is on device %d, the communicator on device %d", rank_, name, buffer,
                       mapping.location_id, device_);
    return ncclInvalidArgument;
  }
  // NCCL finds a window by the first byte only, and would run past the window's end.
  const EmulatedWindow* window = windows_.Find(buffer);
  if (window != nullptr && window->buffer + window->bytes < address + bytes) {
    GetDriver().commpoolEmulatorReport(
        "collective runs past the end of its window",
        ("rank " + std::to_string(rank_) + ": " + name + ", " + std::to_string(bytes) + " bytes").c_str());
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t EmulatedCommunicator::Check(const CollectiveRequest& request) const {
  if (finalized_ || stopped_.load()) return ncclInvalidUsage;
  if (async_error() != ncclSuccess) return async_error();
  if (const ncclResult_t result = CheckAwake(CollectiveName(request.kind)); result != ncclSuccess) return result;
  if (ElementBytes(request.type) == 0 || request.operation < 0 || request.operation > ncclNumOps) {
    COMMPOOL_NCCL_WARN("%s : invalid type %d or operation %d", CollectiveName(request.kind), request.type,
                       request.operation);
    return ncclInvalidArgument;
  }
  if (request.root < 0 || request.root >= ranks_) {
    COMMPOOL_NCCL_WARN("%s : invalid root %d (root should be in the 0..%d range)", CollectiveName(request.kind),
                       request.root, ranks_);
    return ncclInvalidArgument;
  }
  if (request.count == 0) return ncclSuccess;
  const std::optional<BufferBytes> bytes = BytesOf(request, rank_, ranks_);
  if (!bytes) return ncclInvalidArgument;
  ncclResult_t result = ncclSuccess;
  if (bytes->send > 0) result = CheckBuffer("sendbuff", request.send, bytes->send);
  if (result == ncclSuccess && bytes->receive > 0) result = CheckBuffer("recvbuff", request.receive, bytes->receive);
  return result;
}

// What a graph keeps of a collective. It does not keep the communicator: a replay after the communicator's end is a
// broken rule.
struct CapturedCollective {
  std::weak_ptr<EmulatedCommunicator> communicator;
  PendingCollective collective;
};

// A replay takes its place among the communicator's collectives when the program launches the graph.
void* RepeatCollective(void* context) {
  const auto& captured = *static_cast<const CapturedCollective*>(context);
  const std::shared_ptr<EmulatedCommunicator> communicator = captured.communicator.lock();
  const uint64_t sequence = communicator == nullptr ? 0 : communicator->queue_.LaunchUnlessClosed();
  if (sequence == 0) return nullptr;
  auto repeated = std::make_unique<PendingCollective>(captured.collective);
  repeated->communicator = communicator;
  repeated->sequence = sequence;
  return repeated.release();
}

CUresult EmulatedCommunicator::Enqueue(std::unique_ptr<PendingCollective> pending,
                                       const commpoolEmulatorAccess& access) {
  const CUstream stream = pending->request.stream;
  PendingCollective* const context = pending.get();
  const CUresult result = GetDriver().commpoolEmulatorEnqueue(stream, &access, &StartCollective, context);
  if (result == CUDA_SUCCESS) {
    static_cast<void>(pending.release());  // the stream owns it now
  } else {
    queue_.CancelLaunch();
  }
  return result;
}

CUresult EmulatedCommunicator::Capture(const PendingCollective& pending, const commpoolEmulatorAccess& access) {
  // NCCL 2.28.9, src/register/coll_reg.cc: buffers that the program registered, or that NCCL registers for the graph.
  // Kernels on windows use the window's record, and copies its address.
  const Route route = pending.plan.route;
  const bool may_hold =
      route == Route::kBuffers && !(IsSwitchedOff("NCCL_LOCAL_REGISTER") && IsSwitchedOff("NCCL_GRAPH_REGISTER"));
  const commpoolEmulatorReplay replay = {.again = &RepeatCollective,
                                         .end = [](void* context) { delete static_cast<CapturedCollective*>(context); },
                                         .may_hold_memory = may_hold ? 1 : 0,
                                         .is_kernel = route == Route::kCopyEngines ? 0 : 1};
  auto captured = std::make_unique<CapturedCollective>(CapturedCollective{weak_from_this(), pending});
  const CUresult result =
      GetDriver().commpoolEmulatorCapture(pending.request.stream, &access, &StartCollective, captured.get(), &replay);
  if (result == CUDA_SUCCESS) static_cast<void>(captured.release());  // the graph owns it now
  return result;
}

ncclResult_t EmulatedCommunicator::Launch(const CollectiveRequest& request) {
  if (request.count == 0 && request.transfers.empty()) return ncclSuccess;
  const CurrentContext guard(context_);
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = GetDriver().cuStreamIsCapturing(request.stream, &capturing);
  if (result != CUDA_SUCCESS) return ResultOf(result);
  const bool captured = capturing != CU_STREAM_CAPTURE_STATUS_NONE;
  auto pending = std::make_unique<PendingCollective>();
  pending->request = request;
  if (!captured) pending->sequence = queue_.Launch();
  pending->plan = Plan(request, pending->sequence);
  const std::string name = std::string("nccl") + CollectiveName(request.kind);
  const Ranges ranges = RangesOf(request, rank_, ranks_);
  pending->reads.resize(ranges.reads.size());
  pending->writes.resize(ranges.writes.size());
  const commpoolEmulatorAccess access = {.name = name.c_str(),
                                         .reads = ranges.reads.data(),
                                         .read_count = ranges.reads.size(),
                                         .writes = ranges.writes.data(),
                                         .write_count = ranges.writes.size(),
                                         .duration_us = pending->plan.duration_us};
  if (captured) {
    result = Capture(*pending, access);
  } else {
    pending->communicator = shared_from_this();
    result = Enqueue(std::move(pending), access);
  }
  if (result != CUDA_SUCCESS) {
    COMMPOOL_NCCL_WARN("rank %d: %s was refused by the driver with error %d", rank_, name.c_str(), result);
  }
  return ResultOf(result);
}

}  // namespace commpool::internal::emulated_nccl
