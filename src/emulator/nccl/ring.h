// Moves the data of collectives around a ring. The result is deterministic: one rank reduces each element, once and in
// a fixed order, and then sends the bits on. So every rank has the same bits. One thread at a time.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

#include "commpool/status.h"
#include "src/emulator/nccl/bootstrap.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

// Owns nothing: it moves data over a mesh. The communicator makes one for each collective that its progress thread
// runs.
class Ring {
 public:
  // `mesh` outlives the ring. Each wait for a slice of data ends after `timeout`.
  Ring(Mesh& mesh, int rank, int ranks, std::chrono::milliseconds timeout)
      : mesh_(mesh), rank_(rank), ranks_(ranks), timeout_(timeout) {}

  // `own` and `result` may be equal.
  Status AllReduce(const void* own, void* result, size_t count, const Reduction& reduction);
  // `own` holds `count` elements for each rank. `result` may be this rank's part of it.
  Status ReduceScatter(const void* own, void* result, size_t count, const Reduction& reduction);
  // Only the root uses `result`.
  Status Reduce(const void* own, void* result, size_t count, const Reduction& reduction, int root);
  // `own` may be this rank's place in `result`.
  Status AllGather(const void* own, void* result, size_t bytes);
  // Only the root uses `own`.
  Status Broadcast(const void* own, void* result, size_t bytes, int root);

 private:
  struct Chunk {
    size_t begin;  // elements
    size_t count;
  };
  Chunk ChunkOf(int index, size_t count) const;
  int Wrap(int rank) const { return (rank % ranks_ + ranks_) % ranks_; }
  Connection& next() { return mesh_.to(Wrap(rank_ + 1)); }
  Connection& previous() { return mesh_.to(Wrap(rank_ - 1)); }

  // Puts chunk `rank + 1` of the result in its place. The other places hold partial results.
  Status ReduceChunks(const char* own, char* result, size_t count, const Reduction& reduction);
  Status ReduceBlocks(const char* own, char* result, size_t block_bytes, size_t count, const Reduction& reduction);
  // Returns this rank's addend: `own`, or `prepared` after filling it.
  const char* Prepared(const char* own, size_t count, const Reduction& reduction, char* prepared) const;
  // Passes chunks on until every rank has all. This rank begins with chunk `first`, which is in its place.
  template <typename ChunkPlace>
  Status PassAround(int first, const ChunkPlace& place);
  Status SendAndReceive(const char* sent, size_t sent_bytes, char* received, size_t received_bytes);

  Mesh& mesh_;
  const int rank_;
  const int ranks_;
  const std::chrono::milliseconds timeout_;
  std::vector<char> scratch_;
};

}  // namespace commpool::internal::emulated_nccl
