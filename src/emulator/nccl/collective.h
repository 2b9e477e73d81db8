// One collective: what the program asked for, what this rank decided, and what it tells the others. Values: any thread.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/emulator/nccl/collective_kind.h"

namespace commpool::internal::emulated_nccl {

// One ncclSend or ncclRecv.
struct PeerTransfer {
  enum class Direction { kSend, kReceive };
  Direction direction = Direction::kSend;
  int peer = 0;
  void* buffer = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
};

struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;  // in the API's unit: for all-gather and reduce-scatter the count of one rank
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
  int root = 0;
  CUstream stream = nullptr;
  std::vector<PeerTransfer> transfers = {};  // for kTransfers, which uses no field above except the stream
  // For a pre-multiplied sum, which travels as ncclNumOps: the scalar's bytes, or the place where the device keeps
  // them.
  std::array<char, 8> scalar = {};
  const void* device_scalar = nullptr;
};

// Where a buffer is: the record of its window (0: none, because NCCL's own window is before the first symmetric one),
// its offset in the window, and its offset in the communicator's range.
struct PlaceInWindow {
  uint64_t window = 0;
  uint64_t offset = 0;
  uint64_t in_range = 0;
  bool operator==(const PlaceInWindow&) const = default;
};

// How the data gets to the other ranks.
enum class Route : uint64_t {
  kBuffers,          // ordinary kernels
  kSymmetricKernel,  // to windows, by the windows' records
  kCopyEngines       // to windows, by the addresses of the receive buffer on all ranks, without a kernel
};

// This rank's own decision. As in NCCL, nothing makes the ranks agree on it (NCCL 2.28.9,
// src/scheduler/symmetric_sched.cc).
struct CollectivePlan {
  Route route = Route::kBuffers;
  PlaceInWindow send;
  PlaceInWindow receive;
  double duration_us = 0;
};

// What a rank tells the others at the beginning of a collective. The bytes of its clock follow.
struct CollectiveHeader {
  uint64_t magic = 0;  // the communicator's
  uint64_t sequence = 0;
  uint64_t count = 0;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int32_t type = 0;
  int32_t operation = 0;
  int32_t root = 0;
  Route route = Route::kBuffers;
  PlaceInWindow send;
  PlaceInWindow receive;
  double start_us = 0;
  double duration_us = 0;
};

// A rule that the ranks break together, as their headers show.
struct Mismatch {
  std::string rule;
  std::string details;  // names two ranks
};

// Returns the first difference; nothing if all ranks run the same collective in the same way.
std::optional<Mismatch> FindMismatch(const std::vector<CollectiveHeader>& headers);

}  // namespace commpool::internal::emulated_nccl
