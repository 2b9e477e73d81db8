// Ranks that make the same calls place equally, even with different addresses, streams, and moments of frees, fences
// and waits.
#include <deque>

#include "src/library/base/bytes.h"
#include "src/library/engine/symmetric_engine.h"
#include "tests/engine/modelled_engine.h"

namespace commpool::internal::engine {
namespace {

constexpr int kSteps = 1200;
constexpr uint64_t kMostBlocks = 100;

// A block by its place, the same on every rank.
struct Place {
  SegmentIndex segment = 0;
  uint64_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

enum class Direction { kUp, kDown };

// One rank: its engine, held against the model, and its own random events.
class Rank : ModelledEngine<SymmetricEngine> {
 public:
  Rank(FreeOrder order, Address base, Direction direction, uint64_t seed)
      : ModelledEngine(SymmetricEngine({}, order), seed, 4), next_address_(base), direction_(direction) {}

  using ModelledEngine::Below;
  SymmetricEngine& engine() { return engine_; }
  uint64_t live() const { return sequences_.size(); }

  // Nothing where the pool is full.
  std::optional<Place> Allocate(uint64_t bytes, Sequence sequence) {
    const StreamKey stream = AnyStream();
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream);
    CheckInvariants(engine_);
    if (std::holds_alternative<Grow>(*outcome)) return std::nullopt;
    const Served& served = std::get<Served>(*outcome);
    EXPECT_EQ(model_.Serve(served, bytes, stream), "");
    sequences_[sequence] = served.address;
    if (Below(2) == 0) RecordStream(served.address);
    const auto segment = static_cast<SegmentIndex>(engine_.Find(served.address)->segment);
    return Place{segment, served.address - bases_.at(segment)};
  }

  void Free(Sequence sequence) {
    const Address address = sequences_.at(sequence);
    sequences_.erase(sequence);
    ModelledEngine::Free(address);
    CheckInvariants(engine_);
  }

  void FreeAny() {
    if (sequences_.empty()) return;
    Free(std::next(sequences_.begin(), static_cast<int64_t>(Below(sequences_.size())))->first);
  }

  void AttachFences() {
    AttachEveryFence();
    CheckInvariants(engine_);
  }

  void PassAnyFence() {
    ModelledEngine::PassAnyFence();
    CheckInvariants(engine_);
  }

  void WaitForDevice() {
    DeviceIdle(engine_.Now());
    CheckInvariants(engine_);
  }

  // Upwards or downwards, so that the order of addresses differs between ranks too.
  void AddSegment(uint64_t bytes) {
    const uint64_t distance = bytes + Below(3) * kMiB;
    if (direction_ == Direction::kDown) next_address_ -= distance;
    bases_[engine_.AddSegment({next_address_, bytes})] = next_address_;
    if (direction_ == Direction::kUp) next_address_ += distance;
  }

 private:
  Address next_address_;
  Direction direction_;
  std::map<SegmentIndex, Address> bases_;
  std::map<Sequence, Address> sequences_;  // live blocks
};

class SymmetricRanks : public ::testing::TestWithParam<std::tuple<FreeOrder, uint64_t>> {
 protected:
  SymmetricRanks() : random_(seed()) {
    ranks_.emplace_back(order(), 64 * kGiB, Direction::kUp, seed() + 100);
    ranks_.emplace_back(order(), 3 * kGiB, Direction::kUp, seed() + 200);
    ranks_.emplace_back(order(), 900 * kGiB, Direction::kDown, seed() + 300);
  }

  static FreeOrder order() { return std::get<0>(GetParam()); }
  static uint64_t seed() { return std::get<1>(GetParam()); }

  void AllocateEverywhere() {
    const uint64_t bytes = 1 + random_() % (random_() % 4 == 0 ? 4 * kMiB : 32 * kKiB);
    const std::optional<Place> place = ranks_[0].Allocate(bytes, next_sequence_);
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      EXPECT_EQ(ranks_[rank].Allocate(bytes, next_sequence_) == place, true) << "rank " << rank;
    }
    if (!place) return GrowEverywhere();
    live_.push_back(next_sequence_++);
  }

  void GrowEverywhere() {
    if (order() == FreeOrder::kDeferred) ReclaimEverywhere();
    for (Rank& rank : ranks_) rank.AddSegment(20 * kMiB);
  }

  void FreeSomething() {
    if (order() == FreeOrder::kDeferred) {
      for (Rank& rank : ranks_) {
        for (uint64_t frees = rank.Below(3); frees > 0; --frees) rank.FreeAny();
        if (rank.Below(2) == 0) rank.AttachFences();
      }
      return;
    }
    if (live_.empty()) return;
    const size_t chosen = random_() % live_.size();
    for (Rank& rank : ranks_) {
      rank.Free(live_[chosen]);
      rank.AttachFences();
    }
    live_.erase(live_.begin() + static_cast<int64_t>(chosen));
  }

  // Frees of every rank become free memory on every rank.
  void ReclaimEverywhere() {
    std::vector<Sequence> common = ranks_[0].engine().LocallyFreed();
    for (Rank& rank : ranks_) {
      const std::vector<Sequence> freed = rank.engine().LocallyFreed();
      EXPECT_TRUE(std::is_sorted(freed.begin(), freed.end()));
      std::erase_if(common,
                    [&](Sequence sequence) { return !std::binary_search(freed.begin(), freed.end(), sequence); });
    }
    for (Rank& rank : ranks_) {
      rank.engine().ApplyFrees(common);
      rank.engine().NoteCollective(SequenceCall::kReclaim, common.size());
      CheckInvariants(rank.engine());
    }
  }

  // Collective: quiesces, then removes wholly free segments.
  void TrimEverywhere() {
    const std::vector<SegmentIndex> free = ranks_[0].engine().WhollyFreeSegments();
    for (Rank& rank : ranks_) {
      EXPECT_EQ(rank.engine().WhollyFreeSegments(), free);
      rank.AttachFences();
      rank.WaitForDevice();
      for (const SegmentIndex segment : free) {
        ASSERT_TRUE(rank.engine().IsIdle(segment));
        rank.engine().RemoveSegment(segment);
      }
    }
  }

  void LocalEvents() {
    for (Rank& rank : ranks_) {
      if (rank.Below(3) == 0) rank.PassAnyFence();
      if (rank.Below(50) == 0) rank.WaitForDevice();
    }
  }

  void Step() {
    const uint64_t choice = random_() % 100;
    if (choice < 50 && ranks_[0].live() < kMostBlocks) {
      AllocateEverywhere();
    } else if (choice < 90) {
      FreeSomething();
    } else if (choice < 99) {
      if (order() == FreeOrder::kDeferred) ReclaimEverywhere();
    } else {
      TrimEverywhere();
    }
    LocalEvents();
  }

  std::mt19937_64 random_;
  std::deque<Rank> ranks_;
  std::vector<Sequence> live_;
  Sequence next_sequence_ = 0;
};

TEST_P(SymmetricRanks, PlaceEquallyWithAnyDifferencesBetweenThem) {
  for (int step = 0; step < kSteps; ++step) {
    Step();
    for (Rank& rank : ranks_) {
      ASSERT_EQ(rank.engine().log().hash(), ranks_[0].engine().log().hash()) << "step " << step;
      ASSERT_EQ(rank.engine().counters().largest_free_block_bytes,
                ranks_[0].engine().counters().largest_free_block_bytes);
    }
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  EXPECT_GT(next_sequence_, uint64_t{kSteps} / 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SymmetricRanks,
                         ::testing::Combine(::testing::Values(FreeOrder::kDeferred, FreeOrder::kOrdered),
                                            ::testing::Range(uint64_t{1}, uint64_t{5})));

}  // namespace
}  // namespace commpool::internal::engine
