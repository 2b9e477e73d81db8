#include "src/pool/block_words.h"

#include "src/engine/messages.h"

namespace commpool::internal {

namespace {

using State = engine::BlockWord::State;

Status FreedAlready(CUdeviceptr address) {
  return Status(StatusCode::kNotFound,
                "no live block at " + engine::Hexadecimal(address) + ": freed already (it is in a thread's cache)");
}

bool HasClass(uint64_t bytes) {
  return bytes <= engine::kSmallBytes && engine::ClassBytes(engine::ClassOf(bytes)) == bytes;
}

}  // namespace

void BlockWords::Publish(const std::shared_ptr<Pool>& pool, CUdeviceptr address, uint64_t bytes, uint64_t requested,
                         StreamKey stream, Caching caching) {
  TellAllocated(address, bytes, stream, pool->name().c_str());
  engine::AtomicWord* const word = shared_.caches->blocks().Find(address);
  if (word == nullptr) return;
  engine::BlockWord value = engine::BlockWord::Live();
  if (caching == Caching::kYes && HasClass(bytes)) {
    const engine::Lane lane = shared_.caches->LaneOf(pool, stream);
    shared_.caches->Open(lane);
    value = engine::BlockWord::Cacheable(lane, engine::ClassOf(bytes), requested);
  }
  word->store(value.bits(), std::memory_order_release);
}

Result<uint64_t> BlockWords::Withdraw(CUdeviceptr address) {
  engine::AtomicWord* const word = shared_.caches->blocks().Find(address);
  if (word == nullptr) return uint64_t{0};
  uint64_t bits = word->load(std::memory_order_acquire);
  const engine::BlockWord value(bits);
  if (value.state() == State::kNone) return uint64_t{0};
  if (value.state() == State::kCached || !word->compare_exchange_strong(bits, 0, std::memory_order_acq_rel)) {
    return FreedAlready(address);
  }
  return value.state() == State::kCacheable ? value.requested() : 0;
}

Result<uint64_t> BlockWords::MakeUncacheable(CUdeviceptr address) {
  engine::AtomicWord* const word = shared_.caches->blocks().Find(address);
  if (word == nullptr) return uint64_t{0};
  uint64_t bits = word->load(std::memory_order_acquire);
  const engine::BlockWord value(bits);
  if (value.state() == State::kNone || value.state() == State::kLive) return uint64_t{0};
  const uint64_t live = engine::BlockWord::Live().bits();
  if (value.state() == State::kCached || !word->compare_exchange_strong(bits, live, std::memory_order_acq_rel)) {
    return FreedAlready(address);
  }
  return value.requested();
}

void BlockWords::TellAllocated(CUdeviceptr address, uint64_t bytes, StreamKey stream, const char* pool) const {
  if (!shared_.annotations.listening || !IsReachable(stream)) return;
  shared_.annotations.block_allocated(address, bytes, StreamOfKey(stream), pool);
}

void BlockWords::TellRecorded(CUdeviceptr address, StreamKey stream) const {
  if (shared_.annotations.listening && IsReachable(stream)) {
    shared_.annotations.block_recorded(address, StreamOfKey(stream));
  }
}

}  // namespace commpool::internal
