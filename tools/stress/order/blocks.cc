// How the blocks of a worker come, are used and go.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tools/stress/order/worker.h"

namespace commpool::cli::stress_order {

namespace {

constexpr uint64_t kLongestSteps = 24;
constexpr std::chrono::milliseconds kLongestWork(10);

}  // namespace

// A default stream means the device that the pool's place, the call or the current context names: see design.md.
Status OrderWorker::Ask(OrderPool& pool, uint64_t bytes, const OrderStream* stream, CUdeviceptr* address) {
  void* pointer = nullptr;
  const bool anywhere = stream == nullptr || !stream->IsDefault() || pool.own_device_alone;
  const bool by_scope = stream != nullptr && stream->device == pool.device && Random(8) == 0;
  const int device = anywhere || by_scope ? streams_.AnyDevice() : stream->device;
  const CUstream handle = stream == nullptr ? COMMPOOL_NO_STREAM : stream->handle;
  Status status;
  streams_.On(stream, device, [&] {
    if (!by_scope) {
      status = machine_.Ask([&] { return commpool_pool_allocate(pool.handle, bytes, handle, &pointer); });
      return;
    }
    commpool_scope scope = 0;
    Expect(machine_.Ask([&] { return commpool_scope_begin(pool.handle, nullptr, &scope); }), "scope_begin");
    status = machine_.Ask([&] { return commpool_allocate(pool.device, bytes, handle, &pointer); });
    Expect(machine_.Ask([&] { return commpool_scope_end(scope); }), "scope_end");
  });
  *address = reinterpret_cast<CUdeviceptr>(pointer);
  return status;
}

std::optional<OrderBlock> OrderWorker::Allocate(size_t number) {
  OrderPool& pool = pools_[number];
  OrderBlock block{.range = {0, RandomBytes()}, .pool = number};
  if (!pool.without_stream || Random(2) != 0) block.home = streams_.Any(pool.asking);
  if (block.home != nullptr && !block.home->IsDefault() && pool.outlive) block.home->promised = true;
  const Status status = Ask(pool, block.range.bytes, block.home.get(), &block.range.address);
  if (!status.ok()) {
    const bool full = status.code() == StatusCode::kOutOfMemory || status.code() == StatusCode::kExhausted;
    // What is left then is to wait for the device, which would break the capture.
    const bool in_the_way = capturing_ && status.code() == StatusCode::kFailedPrecondition;
    if (!full && !in_the_way) Expect(status, "allocate from " + pool.name);
    return std::nullopt;
  }
  const StreamPointer first = block.home != nullptr ? block.home : streams_.Any(pool.using_);
  Note(block,
       block.home == nullptr ? std::string("asked for without a stream") : "asked for on " + block.home->Describe());
  streams_.On(first.get(), [&] { Write(block, first); });
  return block;
}

void OrderWorker::AllocateSet(size_t number) {
  OrderGroup& group = pools_.group(number);
  std::scoped_lock lock(group.sequence);
  const uint64_t set = next_set_++;
  const uint64_t bytes_of = random_();  // each rank asks for the same bytes
  size_t served = 0;
  for (const size_t pool : group.pools) {
    const std::mt19937_64 others = std::exchange(random_, std::mt19937_64(bytes_of));
    std::optional<OrderBlock> block = Allocate(pool);
    random_ = others;
    if (!block) continue;
    ++served;
    if (pools_[pool].ordered) block->set = set;
    blocks_.push_back(std::move(*block));
  }
  if (served != 0 && served != group.pools.size()) {
    machine_.Violate(step_, std::to_string(served) + " of " + std::to_string(group.pools.size()) +
                                " ranks of a symmetric pool were served");
  }
}

void OrderWorker::Use(OrderBlock& block) {
  OrderPool& pool = pools_[block.pool];
  const bool on_home = block.home != nullptr && !block.home->gone && !block.home->captures;
  const bool stays_home = pool.kind == PoolKind::kPeerAsked;
  if (stays_home && !on_home) return;
  Use(block, stays_home || (on_home && Random(3) == 0) ? block.home : streams_.Any(pool.using_));
}

void OrderWorker::Use(OrderBlock& block, const StreamPointer& stream) {
  const bool known = block.value != 0 && block.discards == pools_[block.pool].discards.load();
  const bool writes = !known || Random(3) == 0;
  const bool records = Random(2) == 0;
  streams_.On(stream.get(), [&] {
    if (known) Check(block, stream);
    if (writes) Write(block, stream);
    if (records) Record(block, stream);
  });
}

void OrderWorker::Write(OrderBlock& block, const StreamPointer& stream) {
  streams_.Await(*stream, block.written);
  for (const Moment& read : block.reads) streams_.Await(*stream, read);
  block.value = NextValue();
  block.discards = pools_[block.pool].discards.load();
  Fill(block, stream);
  block.reads.clear();
  block.written = streams_.Now(stream);
  Note(block, "written on " + stream->Describe() + " as " + std::to_string(block.value));
  Used(block, stream);
}

void OrderWorker::Check(OrderBlock& block, const StreamPointer& stream) {
  streams_.Await(*stream, block.written);
  Compare(block, stream);
  block.reads.push_back(streams_.Now(stream));
  Note(block, "read on " + stream->Describe());
  Used(block, stream);
}

// On the device. The host may wait for this work, and makes no step then.
void OrderWorker::WorkUntil(uint64_t step) const {
  const auto end = std::chrono::steady_clock::now() + kLongestWork;
  while (at_.load() < step && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Some work takes as long as the program takes for some steps, so that what comes later has to wait.
void OrderWorker::TakeTime(const StreamPointer& stream) {
  if (Random(4) != 0) return;
  const uint64_t until = step_ + 1 + Random(kLongestSteps);
  Expect(work_.Call(stream->handle, [this, until] { WorkUntil(until); }), "work");
}

void OrderWorker::Fill(const OrderBlock& block, const StreamPointer& stream) {
  TakeTime(stream);
  Expect(work_.Fill(stream->handle, block.range, block.value), "work");
}

void OrderWorker::Compare(const OrderBlock& block, const StreamPointer& stream) {
  TakeTime(stream);
  const std::string where = Named(block) + ", read on " + stream->Describe() + ", ";
  const auto wrong = [this, range = block.range, value = block.value, where, step = step_](uint64_t at,
                                                                                           uint32_t found) {
    machine_.Violate(step,
                     "bytes: a live block of " + where + "has " + std::to_string(found) + " at its byte " +
                         std::to_string(at) + " where its owner wrote " + std::to_string(value),
                     range);
  };
  Expect(work_.Compare(stream->handle, block.range, block.value, wrong), "work");
}

// A use on another stream than the block's own has to be recorded before the free.
void OrderWorker::Used(OrderBlock& block, const StreamPointer& stream) {
  if (stream == block.home || machine_.plant() == Plant::kSkipRecord) return;
  const auto known = std::find(block.unrecorded.begin(), block.unrecorded.end(), stream);
  if (known == block.unrecorded.end()) block.unrecorded.push_back(stream);
}

// On the stream's thread, its device current.
void OrderWorker::Record(OrderBlock& block, const StreamPointer& stream) {
  const auto found = std::find(block.unrecorded.begin(), block.unrecorded.end(), stream);
  if (found == block.unrecorded.end()) return;
  block.unrecorded.erase(found);
  auto* const pointer = reinterpret_cast<void*>(block.range.address);
  if (!stream->IsDefault() && pools_[block.pool].outlive) stream->promised = true;
  Expect(machine_.Ask([&] { return commpool_record_stream(pointer, stream->handle); }), "record_stream");
  Note(block, "recorded on " + stream->Describe());
}

void OrderWorker::RecordBeforeEnd(const StreamPointer& stream) {
  for (OrderBlock& block : blocks_) {
    const auto& unrecorded = block.unrecorded;
    if (std::find(unrecorded.begin(), unrecorded.end(), stream) == unrecorded.end()) continue;
    streams_.On(stream.get(), [&] { Record(block, stream); });
  }
}

void OrderWorker::FreeAt(size_t index) {
  OrderBlock block = TakeOut(index);
  if (block.set == 0) return Free(std::move(block));
  const uint64_t set = block.set;
  std::scoped_lock lock(pools_.group(pools_[block.pool].group).sequence);
  Free(std::move(block));
  for (size_t other = blocks_.size(); other-- > 0;) {
    if (blocks_[other].set == set) Free(TakeOut(other));
  }
}

void OrderWorker::Free(OrderBlock block) {
  while (!block.unrecorded.empty()) {
    const StreamPointer stream = block.unrecorded.back();
    streams_.On(stream.get(), [&] { Record(block, stream); });
  }
  if (machine_.plant() == Plant::kLeak && !std::exchange(leaked_, true)) return;
  Note(block, "freed");
  streams_.On(nullptr, [&] {
    const auto free = [&] { return commpool_free(reinterpret_cast<void*>(block.range.address)); };
    Expect(machine_.Ask(free), "free of a block of " + Named(block));
  });
}

}  // namespace commpool::cli::stress_order
