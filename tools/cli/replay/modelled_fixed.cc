// Fixed pools in modelled time: what src/pool/growing does with CachingEngine.
#include <algorithm>
#include <deque>
#include <utility>

#include "src/base/bytes.h"
#include "src/engine/caching_engine.h"
#include "src/engine/fixed_slack.h"
#include "tools/cli/replay/modelled_pool.h"
#include "tools/cli/replay/modelled_progress.h"

namespace commpool::cli {

namespace engine = internal::engine;

namespace {

constexpr uint64_t kApart = uint64_t{512} << 30;  // segments never touch

constexpr size_t kMostKept = 8;  // addresses of released segments (KeptAddresses)

// MakeFixedEngine.
engine::EngineOptions Options() {
  engine::EngineOptions options;
  options.rounding = engine::Rounding::kClasses;
  options.spaces = engine::Spaces::kApart;
  options.merge = engine::MergePolicy::kCompatible;
  options.choice = engine::Choice::kPartlyUsedFirst;
  return options;
}

class FixedPool final : public ModelledPool {
 public:
  explicit FixedPool(ModelledDevice& device) : ModelledPool(device), engine_(Options()), progress_(device, engine_) {}

  const engine::CachingEngine& engine() const override { return engine_; }
  engine::CachingEngine& engine() override { return engine_; }

 private:
  // FixedGrower::Grow.
  void Grow(uint64_t bytes, uint32_t stream) override {
    engine_.SetCutting(slack_.IsCalm() ? engine::CachingEngine::Cutting::kFreely
                                       : engine::CachingEngine::Cutting::kSparingly);
    const engine::Grow grow = engine_.GrowthFor(bytes, stream, engine::Reuse::kSameStream).value();
    if (grow.bytes == 0) return;
    const bool large = grow.space == engine::Space::kLarge;
    MakeWay(bytes, grow.bytes, !(large && ServesFreely(bytes, stream)));
    if (large && Excess(bytes, grow.bytes) > 0 && ServesFreely(bytes, stream)) return;
    slack_.CountMade(engine_.counters(), grow.bytes);
    const auto kept = std::find(kept_.rbegin(), kept_.rend(), grow.bytes);
    if (kept != kept_.rend()) {
      kept_.erase(std::next(kept).base());
    } else {
      device().Call("cuMemAddressReserve", grow.bytes);
    }
    device().Call("cuMemCreate", grow.bytes);
    device().Call("cuMemMap", grow.bytes);
    device().Open(1, grow.bytes);
    engine_.AddSegment({next_, grow.bytes}, grow.space);
    next_ += kApart;
  }

  bool ServesFreely(uint64_t bytes, uint32_t stream) {
    return engine_.GrowthFor(bytes, stream, engine::Reuse::kAnyStream).value().bytes == 0;
  }

  uint64_t Excess(uint64_t bytes, uint64_t segment_bytes) const {
    return slack_.Excess(engine_.counters(), bytes, segment_bytes, 0);
  }

  void MakeWay(uint64_t bytes, uint64_t segment_bytes, bool wait) {
    const std::vector<engine::SegmentIndex> unused = engine_.LongestUnusedSegments();
    if (unused.empty() || Excess(bytes, segment_bytes) == 0) return;
    if (wait) {
      AwaitFor(segment_bytes);
    } else {
      Poll();
    }
    uint64_t over = Excess(bytes, segment_bytes);
    for (auto index = unused.begin(); index != unused.end() && over > 0; ++index) {
      if (!engine_.IsIdle(*index)) continue;
      const engine::SegmentRange range = engine_.RemoveSegment(*index);
      device().Call("cuMemUnmap", range.bytes);
      device().Call("cuMemRelease", range.bytes);
      kept_.push_back(range.bytes);
      if (kept_.size() > kMostKept) {
        device().Call("cuMemAddressFree", kept_.front());
        kept_.pop_front();
      }
      over -= std::min(over, range.bytes);
    }
  }

  // StreamProgress::AwaitFor.
  void AwaitFor(uint64_t bytes) {
    const double limit = 50 + 2.5 * static_cast<double>(bytes) / static_cast<double>(internal::kMiB);
    if (progress_.Await(limit, [this] { PollFences(); })) CountWait();
  }

  void Poll() {
    PollFences();
    progress_.Poll();
  }

  engine::CachingEngine engine_;
  ModelledProgress progress_;
  engine::FixedSlack slack_;
  Address next_ = kApart;
  std::deque<uint64_t> kept_;  // bytes of addresses without memory
};

}  // namespace

std::unique_ptr<ModelledPool> MakeFixedPool(ModelledDevice& device) { return std::make_unique<FixedPool>(device); }

}  // namespace commpool::cli
