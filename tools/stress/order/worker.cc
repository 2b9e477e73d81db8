#include "tools/stress/order/worker.h"

#include <utility>

#include "src/library/base/bytes.h"

namespace commpool::cli::stress_order {

namespace {

constexpr size_t kMostBlocks = 64;

// Each step has random numbers of its own, so that what a full pool answers does not change all later steps.
uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

OrderWorker::OrderWorker(Machine& machine, OrderPools& pools, OrderShared& shared, uint64_t seed)
    : machine_(machine),
      pools_(pools),
      shared_(shared),
      seed_(seed),
      random_(seed),
      values_(seed),
      streams_(machine, random_, pools.devices()),
      work_(machine) {}

OrderWorker::~OrderWorker() {
  const std::unique_lock alone(shared_.steps);
  while (!blocks_.empty()) FreeAt(blocks_.size() - 1);
  for (OrderBlock& block : std::exchange(shared_.exchanged, {})) Free(std::move(block));
  work_.Finish();
}

void OrderWorker::Expect(const Status& status, const std::string& what) {
  if (!status.ok()) machine_.Violate(step_, what + ": " + status.message());
}

void OrderWorker::Note(const OrderBlock& block, const std::string& what) {
  machine_.history().Note(step_, block.range, what + " (" + Named(block) + ")");
}

uint64_t OrderWorker::RandomBytes() {
  const uint64_t kind = Random(100);
  if (kind < 60) return 1 + Random(16 * internal::kKiB);
  if (kind < 90) return 1 + Random(512 * internal::kKiB);
  return 1 + Random(2 * internal::kMiB);
}

OrderBlock OrderWorker::TakeOut(size_t index) {
  OrderBlock block = std::move(blocks_[index]);
  blocks_[index] = std::move(blocks_.back());
  blocks_.pop_back();
  return block;
}

void OrderWorker::Step(uint64_t step) {
  step_ = step;
  at_.store(step);
  random_.seed(Mixed(seed_ + step * 0x9e3779b97f4a7c15));
  const uint64_t kind = Random(1000);
  {
    const std::shared_lock together(shared_.steps);
    if (TakeSharedStep(kind)) return;
  }
  const std::unique_lock alone(shared_.steps);
  TakeLoneStep(kind);
}

bool OrderWorker::TakeSharedStep(uint64_t kind) {
  const bool empty = blocks_.empty();
  if (kind < 370 && blocks_.size() < kMostBlocks) {
    const size_t pool = RandomPool();
    if (pools_[pool].group != SIZE_MAX) {
      // Its ranks wait for their devices where its streams may be gone, and a capture forbids that.
      if (!capturing_) AllocateSet(pools_[pool].group);
    } else if (std::optional<OrderBlock> block = Allocate(pool)) {
      blocks_.push_back(std::move(*block));
    }
  } else if (kind < 650) {
    if (!empty) Use(blocks_[Random(blocks_.size())]);
  } else if (kind < 940) {
    if (empty) return true;
    const size_t index = Random(blocks_.size());
    if (Random(2) == 0) Use(blocks_[index]);  // the last work is late, or not
    FreeAt(index);
  } else if (kind < 950) {
    WaitAcross();
  } else if (kind < 960) {
    streams_.ReplaceStream([this](const StreamPointer& stream) { RecordBeforeEnd(stream); });
  } else if (kind < 963) {
    streams_.ReplaceThread([this](const StreamPointer& stream) { RecordBeforeEnd(stream); });
  } else if (kind < 966) {
    if (!capturing_) streams_.WaitOnHost();  // a GPU's capture ends where the host waits for the device
  } else if (kind < 972) {
    Hand();
  } else if (kind < 978) {
    Receive();
  } else {
    return false;
  }
  return true;
}

void OrderWorker::TakeLoneStep(uint64_t kind) {
  const size_t pool = RandomPool();
  if (kind < 984) return ChangePool(pool);
  if (kind < 986) return Sleep(pool);
  if (kind < 990) return Share();
  if (kind < 996) return CaptureAndReplay(pool);
  pools_.CheckInvariants();
}

}  // namespace commpool::cli::stress_order
