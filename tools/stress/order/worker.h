// One worker of a random program: its own blocks, streams and threads, in pools that the workers share.
//
// Every program is a correct one: its streams wait for each other where they use one block, it records the streams that
// use a block beside its own after that work and before the free, and what comes before the end of a promised stream is
// its release. One thread; Exchange is for all.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tools/stress/order/importer.h"
#include "tools/stress/order/pools.h"
#include "tools/stress/order/stream_work.h"
#include "tools/stress/order/streams.h"

namespace commpool::cli::stress_order {

struct OrderBlock {
  MemoryRange range;
  size_t pool = 0;
  StreamPointer home = nullptr;  // the stream that it was allocated for; null: none
  uint32_t value = 0;            // what fills it; 0: nothing yet
  uint64_t discards = 0;         // of the pool, when it was written
  Moment written = {};
  std::vector<Moment> reads = {};              // since then
  std::vector<StreamPointer> unrecorded = {};  // used it, and are not recorded since
  uint64_t set = 0;                            // blocks of a symmetric pool that ranks free together; 0: none
};

// What the workers of a program share beside its pools.
struct OrderShared {
  std::shared_mutex steps;  // every step holds it shared; captures, sleeps and collective calls hold it alone
  std::mutex exchange;
  std::vector<OrderBlock> exchanged;
  Importer* importer = nullptr;
};

class OrderWorker {
 public:
  OrderWorker(Machine& machine, OrderPools& pools, OrderShared& shared, uint64_t seed);
  // Frees the blocks that are left.
  ~OrderWorker();
  OrderWorker(const OrderWorker&) = delete;
  OrderWorker& operator=(const OrderWorker&) = delete;

  void Step(uint64_t step);

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  uint64_t RandomBytes();
  uint32_t NextValue() { return static_cast<uint32_t>(values_()) | 1; }
  size_t RandomPool() { return Random(pools_.size()); }
  bool TakeSharedStep(uint64_t kind);
  void TakeLoneStep(uint64_t kind);
  OrderBlock TakeOut(size_t index);
  void Expect(const Status& status, const std::string& what);
  void Note(const OrderBlock& block, const std::string& what);
  std::string Named(const OrderBlock& block) const { return pools_[block.pool].name; }

  // blocks.cc
  std::optional<OrderBlock> Allocate(size_t pool);
  void AllocateSet(size_t group);
  Status Ask(OrderPool& pool, uint64_t bytes, const OrderStream* stream, CUdeviceptr* address);
  void Use(OrderBlock& block);
  void Use(OrderBlock& block, const StreamPointer& stream);
  void Write(OrderBlock& block, const StreamPointer& stream);
  void Check(OrderBlock& block, const StreamPointer& stream);
  void TakeTime(const StreamPointer& stream);
  void Fill(const OrderBlock& block, const StreamPointer& stream);
  void Compare(const OrderBlock& block, const StreamPointer& stream);
  void WorkUntil(uint64_t step) const;
  void Used(OrderBlock& block, const StreamPointer& stream);
  void Record(OrderBlock& block, const StreamPointer& stream);
  void RecordBeforeEnd(const StreamPointer& stream);
  void FreeAt(size_t index);
  void Free(OrderBlock block);

  // changes.cc
  void Hand();
  void Receive();
  void WaitAcross();
  void ChangePool(size_t pool);
  void ChangeGroup(size_t group);
  void Sleep(size_t pool);
  void Share();
  void CaptureAndReplay(size_t pool);
  void WorkInCapture(size_t pool, const StreamPointer& stream, std::vector<OrderBlock>& left);

  Machine& machine_;
  OrderPools& pools_;
  OrderShared& shared_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::mt19937_64 values_;
  OrderStreams streams_;
  std::vector<OrderBlock> blocks_;
  uint64_t step_ = 0;
  std::atomic<uint64_t> at_{0};  // the step, for work on devices
  uint64_t next_set_ = 1;
  bool capturing_ = false;
  bool leaked_ = false;
  StreamWork work_;
};

}  // namespace commpool::cli::stress_order
