// Decides for a stream-ordered memory pool: which free memory serves an allocation, how much the pool grows, and what
// it gives back. It maps nothing and submits nothing; addresses are offsets from the pool's start. It is not
// thread-safe: the machine's lock guards it.
#pragma once

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

// A position in a stream, after one operation. Memory can be reused after a free, and used after an allocation.
struct StreamPoint {
  uint64_t stream = 0;
  uint64_t sequence = 0;
  std::shared_ptr<Operation> operation;
};

// How an allocation is ordered after an earlier free; the best order is first.
enum class Order {
  kOwnStream,     // the allocating stream freed it
  kBehindEvents,  // events, or the legacy stream, order the allocation after the free
  kDone,          // the free has run
  kNone,          // the pool must add its own dependency
};

struct ReusePolicies {
  bool follow_events = true;
  bool opportunistic = true;
  bool internal_dependencies = true;

  bool Allows(Order order) const;
};

// Owns the list of free and used pieces of one pool. AsyncMemory calls it, and carries out what it decides.
class AsyncPool {
 public:
  static constexpr uint64_t kStep = uint64_t{32} << 20;  // memory comes and goes in steps, as measured on H200s
  static constexpr uint64_t kAlignment = 512;

  // The pool reserves at most `limit` bytes.
  explicit AsyncPool(uint64_t span, uint64_t limit = std::numeric_limits<uint64_t>::max());

  // The place of an allocation, the steps to reserve for it, and the frees that it must wait for.
  struct Plan {
    AsyncExtent place;
    uint64_t requested = 0;
    std::vector<AsyncExtent> growth;  // whole steps
    std::vector<std::shared_ptr<Operation>> after;
  };
  using Relate = std::function<Order(const StreamPoint&)>;
  // Tries the stream's own memory first, then memory that events or completion make usable, then growth. Returns
  // nothing if the span or the limit is too small. REQUIRES: bytes > 0.
  std::optional<Plan> Find(uint64_t bytes, const Relate& relate) const;
  // For a pool that cannot grow: finds memory that needs a dependency which the pool adds itself.
  std::optional<Plan> FindDepending(uint64_t bytes, const Relate& relate) const;
  // Carries out a plan whose growth is reserved. REQUIRES: nothing changed since Find returned it.
  void Take(const Plan& plan);

  // Returns false if no allocation begins there. Without a point every stream may use the memory at once.
  bool Free(uint64_t offset, std::optional<StreamPoint> point);

  // Memory whose free the host has waited for becomes usable by every stream.
  void Settle(const std::function<bool(const StreamPoint&)>& waited_for);
  // Chooses steps that every stream may use, until at most `keep` bytes stay reserved. It counts them as given back.
  std::vector<AsyncExtent> Release(uint64_t keep);

  uint64_t span() const { return span_; }
  // Finds the live allocation that holds an offset, with the bytes that the program asked for.
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
    uint64_t requested = 0;  // 0: free
    std::optional<StreamPoint> point;
    bool live() const { return requested != 0; }
  };
  using Pieces = std::map<uint64_t, Piece>;

  // Finds the longest runs of free pieces that the order allows, cut to `within`.
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
  Pieces pieces_;                       // covers the whole span without gaps
  std::map<uint64_t, uint64_t> steps_;  // reserved stretches: offset -> end; they never touch
};

}  // namespace commpool::internal::emulator
