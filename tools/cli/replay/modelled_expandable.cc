// Expandable pools in modelled time: what src/pool/growing does with ExpandableEngine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/bytes.h"
#include "src/engine/expandable_engine.h"
#include "tools/cli/replay/modelled_pool.h"
#include "tools/cli/replay/modelled_progress.h"

namespace commpool::cli {

namespace engine = internal::engine;

namespace {

constexpr uint64_t kTerritoryBytes = uint64_t{512} << 30;

engine::EngineOptions OptionsFor(const engine::Slack& slack) {
  engine::EngineOptions options;
  options.rounding = engine::Rounding::kClasses;
  options.spaces = engine::Spaces::kApart;
  options.merge = engine::MergePolicy::kCompatible;
  options.choice = engine::Choice::kFirstFit;
  options.slack = slack;
  return options;
}

class ExpandablePool final : public ModelledPool {
 public:
  ExpandablePool(ModelledDevice& device, const engine::Slack& slack)
      : ModelledPool(device), engine_(OptionsFor(slack)), progress_(device, engine_) {}

  const engine::CachingEngine& engine() const override { return engine_; }
  engine::CachingEngine& engine() override { return engine_; }

 private:
  using Plan = std::optional<engine::Expansion>;

  void Grow(uint64_t bytes, uint32_t stream) override {
    if (const Plan plan = UsualPlan(bytes, stream)) Execute(*plan);
  }

  Plan PlanWith(uint64_t bytes, uint32_t stream, engine::Donors donors) {
    for (;;) {
      const engine::Grow grow = engine_.GrowthFor(bytes, stream, engine::Reuse::kAnyStream).value();
      if (grow.bytes == 0) return std::nullopt;
      engine::Expansion plan =
          engine_.Plan(bytes, stream, donors, engine::kCommonPart, engine::Reuse::kAnyStream).value();
      if (!plan.needs_territory) return plan;
      engine_.AddTerritory({next_territory_, kTerritoryBytes}, grow.space);
      next_territory_ += 2 * kTerritoryBytes;
    }
  }

  Plan UsualPlan(uint64_t bytes, uint32_t stream) {
    Plan plan = PlanWith(bytes, stream, engine::Donors::kNone);
    if (!plan) return plan;
    if (engine_.GrowsCheaply(bytes, plan->made_bytes())) return plan;
    plan = PlanWith(bytes, stream, engine::Donors::kWhole);
    if (!plan || plan->busy_bytes == 0 || plan->made_bytes() == 0) return plan;
    if (engine_.GrowsTooFar(bytes, plan->made_bytes())) {
      AwaitLong(plan->made_bytes());
    } else {
      Poll();
    }
    return PlanWith(bytes, stream, engine::Donors::kWhole);
  }

  // StreamProgress::AwaitLong.
  void AwaitLong(uint64_t bytes) {
    const double mib = std::ceil(static_cast<double>(bytes) / static_cast<double>(internal::kMiB));
    if (progress_.Await(1000 * std::min(mib, 100.0), [this] { PollFences(); })) CountWait();
  }

  void Poll() {
    PollFences();
    progress_.Poll();
  }

  void Execute(const engine::Expansion& plan) {
    engine_.Claim(plan);
    for (const engine::SegmentRange& page : plan.made) {
      device().Call("cuMemCreate", page.bytes);
      device().Call("cuMemMap", page.bytes);
    }
    for (size_t first = 0, end = 0; first < plan.moves.size(); first = end) {
      end = plan.EndOfRow(first, std::numeric_limits<Address>::max());
      const engine::PageMove& last = plan.moves[end - 1];
      device().Unmap(end - first, last.from + last.bytes - plan.moves[first].from);
      for (size_t index = first; index < end; ++index) device().Call("cuMemMap", plan.moves[index].bytes);
    }
    for (const engine::SegmentRange& range : plan.arriving) {
      const auto is_inside = [&](Address address) { return address - range.address < range.bytes; };
      const auto moved = std::count_if(plan.moves.begin(), plan.moves.end(),
                                       [&](const engine::PageMove& move) { return is_inside(move.to); });
      const auto made = std::count_if(plan.made.begin(), plan.made.end(),
                                      [&](const engine::SegmentRange& page) { return is_inside(page.address); });
      device().Open(static_cast<size_t>(moved + made), range.bytes);
    }
    engine_.Settle(plan);
  }

  engine::ExpandableEngine engine_;
  ModelledProgress progress_;
  Address next_territory_ = kTerritoryBytes;
};

}  // namespace

std::unique_ptr<ModelledPool> MakeExpandablePool(ModelledDevice& device, const engine::Slack& slack) {
  return std::make_unique<ExpandablePool>(device, slack);
}

}  // namespace commpool::cli
