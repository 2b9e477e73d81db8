// What a stream-ordered memory pool decides: which free memory serves an allocation, how much it grows, what it gives
// back. It maps nothing and submits nothing: addresses are offsets in the pool's own span. Not thread-safe: the
// machine's lock guards it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_POOL_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_POOL_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace commpool::internal::emulator {

struct Operation;

struct AsyncExtent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const AsyncExtent&) const = default;
};

// One operation of a stream: behind a free the memory may be used again, behind an allocation it may be used at all.
struct StreamPoint {
  uint64_t stream = 0;
  uint64_t sequence = 0;
  std::shared_ptr<Operation> operation;
};

// How an allocation stands to an earlier free, the best first.
enum class Order {
  kOwnStream,     // freed on the stream that allocates
  kBehindEvents,  // events, or the legacy stream, put the allocation behind the free
  kDone,          // the free has run
  kNone,          // a dependency of the pool's own is needed
};

struct ReusePolicies {
  bool follow_events = true;
  bool opportunistic = true;
  bool internal_dependencies = true;

  bool Allows(Order order) const;
};

class AsyncPool {
 public:
  static constexpr uint64_t kStep = uint64_t{32} << 20;  // memory comes and goes in steps, as measured on H200s
  static constexpr uint64_t kAlignment = 512;

  // `limit` is the most it may reserve.
  explicit AsyncPool(uint64_t span, uint64_t limit = std::numeric_limits<uint64_t>::max());

  // Where an allocation goes, what must be reserved for it, and the frees that it must come after.
  struct Plan {
    AsyncExtent place;
    uint64_t requested = 0;
    std::vector<AsyncExtent> growth;  // whole steps
    std::vector<std::shared_ptr<Operation>> after;
  };
  using Relate = std::function<Order(const StreamPoint&)>;
  // Own memory first, then what events and completion give, then growth. Nothing where the span or the limit is too
  // small. REQUIRES: bytes > 0.
  std::optional<Plan> Find(uint64_t bytes, const Relate& relate) const;
  // When it cannot grow: memory that a dependency of the pool's own makes usable.
  std::optional<Plan> FindDepending(uint64_t bytes, const Relate& relate) const;
  // Makes a plan true; its growth has been reserved. REQUIRES: nothing done since it was found.
  void Take(const Plan& plan);

  // False where no allocation begins there. Without a point the memory is anybody's at once.
  bool Free(uint64_t offset, std::optional<StreamPoint> point);

  // What was freed at points that the host has waited for is anybody's.
  void Settle(const std::function<bool(const StreamPoint&)>& waited_for);
  // Chooses steps that anybody may use, until no more than `keep` bytes are reserved. They count as given back.
  std::vector<AsyncExtent> Release(uint64_t keep);

  uint64_t span() const { return span_; }
  // The live allocation that holds an offset, with the bytes that were asked for.
  std::optional<AsyncExtent> LiveAt(uint64_t offset) const;
  size_t live() const { return live_; }

  struct Level {
    uint64_t current = 0;
    uint64_t high = 0;
    void Set(uint64_t value);
    void Reset() { high = current; }
  };
  Level reserved;
  Level used;
  ReusePolicies policies;
  uint64_t release_threshold = 0;

 private:
  struct Piece {
    uint64_t bytes = 0;
    uint64_t requested = 0;  // 0 where free
    std::optional<StreamPoint> point;
    bool live() const { return requested != 0; }
  };
  using Pieces = std::map<uint64_t, Piece>;

  // Maximal runs of free pieces that the order allows, clipped to `within`.
  std::vector<AsyncExtent> Runs(const AsyncExtent& within, Order worst, const std::map<uint64_t, Order>& orders) const;
  std::map<uint64_t, Order> OrdersOf(const Relate& relate) const;
  Plan PlanFor(uint64_t bytes, const AsyncExtent& place, const std::map<uint64_t, Order>& orders) const;
  std::optional<AsyncExtent> FitReserved(uint64_t bytes, Order worst, const std::map<uint64_t, Order>& orders) const;
  std::optional<AsyncExtent> FitGrowing(uint64_t bytes, const std::map<uint64_t, Order>& orders) const;
  std::vector<AsyncExtent> Missing(const AsyncExtent& place) const;
  Pieces::iterator SplitAt(uint64_t offset);
  Pieces::iterator MergeAround(Pieces::iterator piece);
  bool MayMerge(const Piece& left, const Piece& right) const;

  const uint64_t span_;
  const uint64_t limit_;
  size_t live_ = 0;
  Pieces pieces_;                       // of the whole span, without gaps
  std::map<uint64_t, uint64_t> steps_;  // reserved stretches: offset -> end, apart from each other
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_POOL_H_
