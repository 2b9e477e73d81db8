// The data movement of collectives around a ring. Deterministic: each element is reduced once, by one rank, in a fixed
// order, and travels as bits from there, so every rank ends with the same bits. One thread at a time.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_RING_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_RING_H_

#include <nccl.h>

#include <cstddef>
#include <vector>

#include "commpool/status.h"
#include "src/emulator/nccl/bootstrap.h"
#include "src/emulator/nccl/reduction.h"

namespace commpool::internal::emulated_nccl {

class Ring {
 public:
  // `mesh` outlives the ring. `timeout` bounds each wait for a slice of the data.
  Ring(Mesh& mesh, int rank, int ranks, std::chrono::milliseconds timeout)
      : mesh_(mesh), rank_(rank), ranks_(ranks), timeout_(timeout) {}

  // `own` and `result` may be the same.
  Status AllReduce(const void* own, void* result, size_t count, const Reduction& reduction);
  // `own` holds a block of `count` elements for each rank; `result` may be this rank's.
  Status ReduceScatter(const void* own, void* result, size_t count, const Reduction& reduction);
  // `result` counts on the root only.
  Status Reduce(const void* own, void* result, size_t count, const Reduction& reduction, int root);
  // `own` may be its place in `result`.
  Status AllGather(const void* own, void* result, size_t bytes);
  // `own` counts on the root only.
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

  // Leaves chunk `rank + 1` of the result in its place; partial results lie in the others.
  Status ReduceChunks(const char* own, char* result, size_t count, const Reduction& reduction);
  Status ReduceBlocks(const char* own, char* result, size_t block_bytes, size_t count, const Reduction& reduction);
  // This rank's addend: `own`, or what `prepared` is filled with.
  const char* Prepared(const char* own, size_t count, const Reduction& reduction, char* prepared) const;
  // Passes chunks on until every rank has all; this rank begins with chunk `first`, already in place.
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

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_RING_H_
