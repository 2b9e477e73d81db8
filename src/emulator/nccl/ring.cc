#include "src/emulator/nccl/ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/emulator/nccl/reduction.h"

namespace commpool::emulated_nccl {

namespace {

// Small enough for a core's cache, large enough that system calls do not count.
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
  return Connection::Exchange(next(), sent, sent_bytes, previous(), received, received_bytes, DeadlineAfter(timeout_));
}

Status Ring::ReduceScatter(const char* own, char* result, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  const size_t element = ElementBytes(type);
  const size_t slice = kSliceBytes / element;
  const bool divide = DividesBefore(type, operation);
  scratch_.resize(2 * kSliceBytes);
  char* const received = scratch_.data();
  char* const divided = scratch_.data() + kSliceBytes;
  for (int step = 0; step < ranks_ - 1; ++step) {
    const Chunk out = ChunkOf(rank_ - step, count);
    const Chunk in = ChunkOf(rank_ - step - 1, count);
    for (size_t done = 0; done < std::max(out.count, in.count); done += slice) {
      const size_t out_count = done < out.count ? std::min(slice, out.count - done) : 0;
      const size_t in_count = done < in.count ? std::min(slice, in.count - done) : 0;
      const size_t out_place = (out.begin + done) * element;
      const size_t in_place = (in.begin + done) * element;
      // The first chunk is this rank's own; later ones were reduced into `result` a step before.
      const char* sent = step == 0 ? own + out_place : result + out_place;
      if (step == 0 && divide && out_count > 0) {
        Divide(type, own + out_place, ranks_, divided, out_count);
        sent = divided;
      }
      if (Status status = SendAndReceive(sent, out_count * element, received, in_count * element); !status.ok()) {
        return status;
      }
      if (in_count == 0) continue;
      const char* addend = own + in_place;
      if (divide) {
        Divide(type, addend, ranks_, divided, in_count);
        addend = divided;
      }
      Reduce(type, operation, addend, received, result + in_place, in_count);
    }
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

Status Ring::AllReduce(const void* own, void* result, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  const size_t element = ElementBytes(type);
  char* const out = static_cast<char*>(result);
  if (ranks_ == 1) {
    CopyUnlessSame(result, own, count * element);
    return Status();
  }
  if (Status status = ReduceScatter(static_cast<const char*>(own), out, count, type, operation); !status.ok()) {
    return status;
  }
  const Chunk mine = ChunkOf(rank_ + 1, count);
  if (DividesAfter(type, operation)) {
    Divide(type, out + mine.begin * element, ranks_, out + mine.begin * element, mine.count);
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

}  // namespace commpool::emulated_nccl
