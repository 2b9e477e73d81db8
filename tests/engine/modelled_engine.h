// Makes random calls of an engine and compares it with the model. Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "src/library/engine/types.h"
#include "tests/engine/engine_calls.h"
#include "tests/engine/model.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {

template <typename Engine>
class ModelledEngine {
 protected:
  // Calls come from streams 1 to `streams`.
  ModelledEngine(Engine engine, uint64_t seed, StreamKey streams)
      : random_(seed), engine_(std::move(engine)), streams_(streams) {}

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  StreamKey AnyStream() { return 1 + Below(streams_); }
  Address AnyLive() {
    return std::next(model_.live().begin(), static_cast<int64_t>(Below(model_.live().size())))->first;
  }

  void Free(Address address) {
    const Result<Freed> freed = engine_.Free(address);
    ASSERT_TRUE(freed.ok());
    EXPECT_EQ(StreamsOf(freed->missing), model_.Free(address, engine_.Now()));
    missing_.Add(freed->missing);
    EXPECT_FALSE(engine_.Free(address).ok());
  }

  void FreeAny() {
    if (!model_.live().empty()) Free(AnyLive());
  }

  void RecordStream(Address address) {
    const StreamKey stream = AnyStream();
    ASSERT_TRUE(engine_.RecordStream(address, stream).ok());
    model_.Record(address, stream);
  }

  void RecordAny() {
    if (!model_.live().empty()) RecordStream(AnyLive());
  }

  void AttachFence(uint64_t place) {
    const MissingFences::Attached attached = missing_.Attach(engine_, place);
    model_.Attach(attached.missing.address, attached.missing.stream, attached.fence);
  }

  void AttachAnyFence() {
    if (!missing_.empty()) AttachFence(Below(missing_.size()));
  }

  void AttachEveryFence() {
    while (!missing_.empty()) AttachFence(0);
  }

  void PassAnyFence() {
    const std::vector<Fence> pending = engine_.PendingFences();
    EXPECT_TRUE(std::is_sorted(pending.begin(), pending.end()));
    if (pending.empty()) return;
    const Fence fence = pending[Below(pending.size())];
    engine_.FencePassed(fence);
    model_.FencePassed(fence);
  }

  void DeviceIdle(Moment moment) {
    engine_.DeviceIdle(0, moment);
    model_.DeviceIdle(moment);
  }

  // Checks what must hold for every engine between two calls.
  void CheckAgainstModel() const {
    CheckInvariants(engine_);
    const Counters counters = engine_.counters();
    ASSERT_EQ(counters.allocated_blocks.current, model_.live().size());
    ASSERT_EQ(counters.allocated_bytes.current, model_.LiveBytes());
    ASSERT_EQ(counters.free_bytes + counters.allocated_bytes.current, counters.reserved_bytes.current);
  }

  std::mt19937_64 random_;
  Engine engine_;
  Model model_;
  MissingFences missing_;

 private:
  StreamKey streams_;
};

}  // namespace commpool::internal::engine
