#include "src/emulator/nccl/ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/emulator/nccl/duplex.h"

namespace commpool::internal::emulated_nccl {

namespace {

// A slice fits a core's cache, and is large enough to make system calls cheap.
constexpr size_t kSliceBytes = 512 << 10;

void CopyUnlessSame(void* target, const void* source, size_t bytes) {
  if (target != source && bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace

Ring::Chunk Ring::ChunkOf(int index, size_t count) const {
  const auto ranks = static_cast<size_t>(ranks_);
  const auto place = static_cast<size_t>(Wrap(index));
  const size_t share = count / ranks;
  const size_t rest = count % ranks;
  return {share * place + std::min(place, rest), share + (place < rest ? 1 : 0)};
}

Status Ring::SendAndReceive(const char* sent, size_t sent_bytes, char* received, size_t received_bytes) {
  return emulated_nccl::SendAndReceive(next(), sent, sent_bytes, previous(), received, received_bytes,
                                       DeadlineAfter(timeout_));
}

const char* Ring::Prepared(const char* own, size_t count, const Reduction& reduction, char* prepared) const {
  if (!reduction.PreparesOwn() || count == 0) return own;
  reduction.PrepareOwn(own, ranks_, prepared, count);
  return prepared;
}

Status Ring::ReduceChunks(const char* own, char* result, size_t count, const Reduction& reduction) {
  const size_t element = ElementBytes(reduction.type);
  const size_t slice = kSliceBytes / element;
  scratch_.resize(2 * kSliceBytes);
  char* const received = scratch_.data();
  char* const prepared = scratch_.data() + kSliceBytes;
  for (int step = 0; step < ranks_ - 1; ++step) {
    const Chunk out = ChunkOf(rank_ - step, count);
    const Chunk in = ChunkOf(rank_ - step - 1, count);
    for (size_t done = 0; done < std::max(out.count, in.count); done += slice) {
      const size_t out_count = done < out.count ? std::min(slice, out.count - done) : 0;
      const size_t in_count = done < in.count ? std::min(slice, in.count - done) : 0;
      const size_t out_place = (out.begin + done) * element;
      const size_t in_place = (in.begin + done) * element;
      // The first chunk is this rank's own. Later chunks were reduced into `result` one step before.
      const char* sent = step == 0 ? Prepared(own + out_place, out_count, reduction, prepared) : result + out_place;
      if (Status status = SendAndReceive(sent, out_count * element, received, in_count * element); !status.ok()) {
        return status;
      }
      const char* addend = Prepared(own + in_place, in_count, reduction, prepared);
      emulated_nccl::Reduce(reduction.type, reduction.operation, addend, received, result + in_place, in_count);
    }
  }
  return Status();
}

// One slice of every block goes around. Block b ends at rank b.
Status Ring::ReduceBlocks(const char* own, char* result, size_t block_bytes, size_t count, const Reduction& reduction) {
  const size_t bytes = count * ElementBytes(reduction.type);
  char* const received = scratch_.data();
  char* const prepared = received + kSliceBytes;
  char* const partial = prepared + kSliceBytes;
  const auto block = [&](int index) { return own + static_cast<size_t>(Wrap(index)) * block_bytes; };
  const char* sent = Prepared(block(rank_ - 1), count, reduction, prepared);
  for (int step = 0; step < ranks_ - 1; ++step) {
    if (Status status = SendAndReceive(sent, bytes, received, bytes); !status.ok()) return status;
    const char* addend = Prepared(block(rank_ - step - 2), count, reduction, prepared);
    emulated_nccl::Reduce(reduction.type, reduction.operation, addend, received, partial, count);
    sent = partial;
  }
  CopyUnlessSame(result, sent, bytes);
  return Status();
}

Status Ring::ReduceScatter(const void* own, void* result, size_t count, const Reduction& reduction) {
  const size_t element = ElementBytes(reduction.type);
  const size_t slice = kSliceBytes / element;
  scratch_.resize(3 * kSliceBytes);
  for (size_t done = 0; done < count; done += slice) {
    const size_t part = std::min(slice, count - done);
    char* const out = static_cast<char*>(result) + done * element;
    const char* const in = static_cast<const char*>(own) + done * element;
    if (Status status = ReduceBlocks(in, out, count * element, part, reduction); !status.ok()) return status;
    if (reduction.DividesAfter()) Divide(reduction.type, out, ranks_, out, part);
  }
  return Status();
}

// Partial results start at the rank after the root, go along the ring, and end at the root.
Status Ring::Reduce(const void* own, void* result, size_t count, const Reduction& reduction, int root) {
  const size_t element = ElementBytes(reduction.type);
  const size_t slice = kSliceBytes / element;
  scratch_.resize(3 * kSliceBytes);
  char* const received = scratch_.data();
  char* const prepared = received + kSliceBytes;
  char* const partial = prepared + kSliceBytes;
  const bool is_first = rank_ == Wrap(root + 1);
  for (size_t done = 0; done < count; done += slice) {
    const size_t part = std::min(slice, count - done);
    const size_t bytes = part * element;
    const char* sum = Prepared(static_cast<const char*>(own) + done * element, part, reduction, prepared);
    if (!is_first) {
      if (Status status = previous().Receive(received, bytes, DeadlineAfter(timeout_)); !status.ok()) return status;
      emulated_nccl::Reduce(reduction.type, reduction.operation, sum, received, partial, part);
      sum = partial;
    }
    if (rank_ != root) {
      if (Status status = next().Send(sum, bytes, DeadlineAfter(timeout_)); !status.ok()) return status;
      continue;
    }
    char* const out = static_cast<char*>(result) + done * element;
    CopyUnlessSame(out, sum, bytes);
    if (reduction.DividesAfter()) Divide(reduction.type, out, ranks_, out, part);
  }
  return Status();
}

template <typename ChunkPlace>
Status Ring::PassAround(int first, const ChunkPlace& place) {
  for (int step = 0; step < ranks_ - 1; ++step) {
    const auto [out, out_bytes] = place(first - step);
    const auto [in, in_bytes] = place(first - step - 1);
    if (Status status = SendAndReceive(out, out_bytes, in, in_bytes); !status.ok()) return status;
  }
  return Status();
}

Status Ring::AllReduce(const void* own, void* result, size_t count, const Reduction& reduction) {
  const size_t element = ElementBytes(reduction.type);
  char* const out = static_cast<char*>(result);
  if (ranks_ == 1) {
    CopyUnlessSame(result, own, count * element);
    if (reduction.PreparesOwn()) reduction.PrepareOwn(result, ranks_, result, count);
    return Status();
  }
  if (Status status = ReduceChunks(static_cast<const char*>(own), out, count, reduction); !status.ok()) return status;
  const Chunk mine = ChunkOf(rank_ + 1, count);
  if (reduction.DividesAfter()) {
    Divide(reduction.type, out + mine.begin * element, ranks_, out + mine.begin * element, mine.count);
  }
  return PassAround(rank_ + 1, [&](int index) {
    const Chunk chunk = ChunkOf(index, count);
    return std::pair<char*, size_t>(out + chunk.begin * element, chunk.count * element);
  });
}

Status Ring::AllGather(const void* own, void* result, size_t bytes) {
  char* const out = static_cast<char*>(result);
  CopyUnlessSame(out + bytes * static_cast<size_t>(rank_), own, bytes);
  return PassAround(rank_, [&](int index) {
    return std::pair<char*, size_t>(out + bytes * static_cast<size_t>(Wrap(index)), bytes);
  });
}

Status Ring::Broadcast(const void* own, void* result, size_t bytes, int root) {
  char* const out = static_cast<char*>(result);
  if (rank_ == root) CopyUnlessSame(result, own, bytes);
  const bool receives = rank_ != root;
  const bool sends = Wrap(rank_ + 1) != root;
  for (size_t done = 0; done < bytes; done += kSliceBytes) {
    const size_t part = std::min(kSliceBytes, bytes - done);
    if (receives) {
      if (Status status = previous().Receive(out + done, part, DeadlineAfter(timeout_)); !status.ok()) return status;
    }
    if (sends) {
      if (Status status = next().Send(out + done, part, DeadlineAfter(timeout_)); !status.ok()) return status;
    }
  }
  return Status();
}

}  // namespace commpool::internal::emulated_nccl
