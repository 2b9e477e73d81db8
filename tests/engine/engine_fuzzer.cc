// A libFuzzer target: the first byte chooses an engine, the others are its calls. A broken invariant aborts.
#include <algorithm>

#include "src/library/engine/caching_engine.h"
#include "src/library/engine/expandable_engine.h"
#include "src/library/engine/symmetric_engine.h"
#include "tests/engine/fuzzed_engine.h"

namespace commpool::internal::engine {
namespace {

EngineOptions OptionsFrom(uint8_t bits) {
  return {.spaces = bits & 2 ? Spaces::kApart : Spaces::kOne,
          .choice = static_cast<Choice>((bits >> 3) % 3),
          .page_bytes = bits & 32 ? 2 * kMiB : 8 * kMiB};
}

// Shared by caching and expandable engines: who is served, and the parts of graphs.
template <typename Engine>
class FuzzedStreams : public FuzzedEngine<Engine> {
 public:
  using FuzzedEngine<Engine>::FuzzedEngine;

 protected:
  Result<Outcome> TryAllocate(uint64_t bytes, StreamKey stream) override {
    const uint8_t how = this->bytes_.Next();
    const Part part = how % 8 == 7 ? Part{1} + how / 128 : kCommonPart;
    return this->engine_.Allocate(bytes, stream, static_cast<Reuse>(how % 3), part);
  }

  void PlayOwn(uint8_t call) override {
    if (call % 4 == 0) {
      const Part part = Part{1} + this->bytes_.Next() % 2;
      this->engine_.ClosePart(part, this->engine_.Now() - this->bytes_.Next() % 4, this->engine_.StreamsOf(part));
      return this->engine_.ReleasePart(part);
    }
    if (call % 4 == 1) return this->engine_.StreamIdle(this->bytes_.Stream(), this->engine_.Now());
    PlayGrowth(call / 4);
  }

  virtual void PlayGrowth(uint8_t call) = 0;
};

class FuzzedCaching final : public FuzzedStreams<CachingEngine> {
 public:
  using FuzzedStreams::FuzzedStreams;

 protected:
  void MakeRoom(const Grow& grow, uint64_t, StreamKey) override {
    engine_.AddSegment(NewRange(grow.bytes), grow.space);
  }
  void PlayGrowth(uint8_t) override { RemoveIdleSegments(engine_); }
};

class FuzzedExpandable final : public FuzzedStreams<ExpandableEngine> {
 public:
  using FuzzedStreams::FuzzedStreams;

 protected:
  // One growth at a time: claims one where no other is in progress.
  void MakeRoom(const Grow&, uint64_t bytes, StreamKey stream) override {
    if (claimed_ || planned_ || !returning_.empty()) return;
    const auto donors = static_cast<Donors>(bytes_.Next() % 3);
    planned_ = PlanGrowth(
        engine_, bytes, stream, [&] { return donors; },
        [&](const Grow& growth) { return NewRange(growth.bytes + 16 * kMiB); });
  }

  void PlayGrowth(uint8_t call) override {
    if (!returning_.empty()) return GiveBackOne(call);
    if (claimed_) return EndClaim(call);
    if (!planned_) {
      returning_ = engine_.ClaimIdlePages(bytes_.Size());
      return;
    }
    if (engine_.Claim(*planned_)) claimed_ = std::move(planned_);
    planned_.reset();
  }

 private:
  void EndClaim(uint8_t call) {
    const Expansion plan = *std::exchange(claimed_, std::nullopt);
    if (call % 4 != 3) return engine_.Complete(plan);
    FailGrowth(engine_, plan, plan.moves.empty() ? 0 : bytes_.Next() % (plan.moves.size() + 1));
  }

  void GiveBackOne(uint8_t call) {
    const SegmentRange page = returning_.back();
    returning_.pop_back();
    if (call % 4 == 3) return engine_.UnclaimPage(page);
    engine_.RemovePage(page);
  }

  std::optional<Expansion> planned_;
  std::optional<Expansion> claimed_;
  std::vector<SegmentRange> returning_;
};

class FuzzedSymmetric final : public FuzzedEngine<SymmetricEngine> {
 public:
  using FuzzedEngine::FuzzedEngine;

 protected:
  Result<Outcome> TryAllocate(uint64_t bytes, StreamKey stream) override {
    const bool serves = engine_.CanServe(bytes);
    Result<Outcome> outcome = engine_.Allocate(bytes, stream);
    const bool served = outcome.ok() && std::holds_alternative<Served>(*outcome);
    COMMPOOL_CHECK(served == serves, "what was said to be served is not");
    return outcome;
  }
  void MakeRoom(const Grow& grow, uint64_t, StreamKey) override { engine_.AddSegment(NewRange(grow.bytes)); }
  void PlayOwn(uint8_t call) override {
    if (call % 4 == 0) return RemoveIdleSegments(engine_);
    // Frees of every rank: some of this rank's.
    std::vector<Sequence> freed = engine_.LocallyFreed();
    if (call % 4 == 1 && !freed.empty()) freed.resize(bytes_.Next() % freed.size());
    std::reverse(freed.begin(), freed.end());
    engine_.ApplyFrees(freed);
  }
};

}  // namespace
}  // namespace commpool::internal::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace commpool::internal::engine;
  FuzzedBytes bytes(data, size);
  const uint8_t kind = bytes.Next() % 4;
  const EngineOptions options = OptionsFrom(bytes.Next());
  if (kind == 0) FuzzedCaching(CachingEngine(options), bytes).Play();
  if (kind == 1) FuzzedExpandable(ExpandableEngine(options), bytes).Play();
  if (kind == 2) FuzzedSymmetric(SymmetricEngine(options, FreeOrder::kDeferred), bytes).Play();
  if (kind == 3) FuzzedSymmetric(SymmetricEngine(options, FreeOrder::kOrdered), bytes).Play();
  return 0;
}
