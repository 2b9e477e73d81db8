// One collective: what the program asked for, what this rank decided, what it tells the others. Values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_H_

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
  size_t count = 0;  // as the API counts: of one rank for all-gather and reduce-scatter
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
  int root = 0;
  CUstream stream = nullptr;
  std::vector<PeerTransfer> transfers = {};  // of kTransfers, which has none of the above but a stream
  // Of a pre-multiplied sum, which travels as ncclNumOps: the scalar's bytes, or where the device keeps them.
  std::array<char, 8> scalar = {};
  const void* device_scalar = nullptr;
};

// Where a buffer lies: its window's record, 0 for none (NCCL's own is before the first symmetric one); the offset in
// the window; and the one in the communicator's range.
struct PlaceInWindow {
  uint64_t window = 0;
  uint64_t offset = 0;
  uint64_t in_range = 0;
  bool operator==(const PlaceInWindow&) const = default;
};

// This rank's own decision, as in NCCL: nothing makes ranks agree on it (NCCL 2.28.9,
// src/scheduler/symmetric_sched.cc).
struct CollectivePlan {
  bool symmetric = false;
  PlaceInWindow send;
  PlaceInWindow receive;
  double duration_us = 0;
};

// What a rank tells the others at the head of a collective; its clock's bytes follow it.
struct CollectiveHeader {
  uint64_t magic = 0;  // of the communicator
  uint64_t sequence = 0;
  uint64_t count = 0;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int32_t type = 0;
  int32_t operation = 0;
  int32_t root = 0;
  uint64_t symmetric = 0;
  PlaceInWindow send;
  PlaceInWindow receive;
  double start_us = 0;
  double duration_us = 0;
};

// A rule that the headers of all ranks break together.
struct Mismatch {
  std::string rule;
  std::string details;  // names two ranks
};

// The first disagreement; nothing where all ranks run the same collective the same way.
std::optional<Mismatch> FindMismatch(const std::vector<CollectiveHeader>& headers);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_COLLECTIVE_H_
