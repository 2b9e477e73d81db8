#include "src/emulator/cuda/async_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/library/base/bytes.h"

namespace commpool::internal::emulator {

namespace {

uint64_t EndOf(const AsyncExtent& extent) { return extent.offset + extent.bytes; }

// Adds a stretch that overlaps no other, and joins it with its neighbours.
void AddStretch(std::map<uint64_t, uint64_t>& stretches, const AsyncExtent& added) {
  uint64_t start = added.offset;
  uint64_t end = EndOf(added);
  const auto after = stretches.find(end);
  if (after != stretches.end()) {
    end = after->second;
    stretches.erase(after);
  }
  auto before = stretches.lower_bound(start);
  if (before != stretches.begin() && std::prev(before)->second == start) {
    --before;
    start = before->first;
    stretches.erase(before);
  }
  stretches[start] = end;
}

// REQUIRES: one stretch contains all of it.
void RemoveStretch(std::map<uint64_t, uint64_t>& stretches, const AsyncExtent& removed) {
  const auto holding = std::prev(stretches.upper_bound(removed.offset));
  const auto [start, end] = *holding;
  stretches.erase(holding);
  if (start != removed.offset) stretches[start] = removed.offset;
  if (end != EndOf(removed)) stretches[EndOf(removed)] = end;
}

}  // namespace

bool ReusePolicies::Allows(Order order) const {
  switch (order) {
    case Order::kOwnStream:
      return true;
    case Order::kBehindEvents:
      return follow_events;
    case Order::kDone:
      return opportunistic;
    case Order::kNone:
      return internal_dependencies;
  }
  return false;
}

void AsyncPool::Level::Set(uint64_t value) {
  current = value;
  high = std::max(high, value);
}

AsyncPool::AsyncPool(uint64_t span, uint64_t limit) : span_(span / kStep * kStep), limit_(limit) {
  pieces_[0] = Piece{span_, 0, std::nullopt};
}

std::map<uint64_t, Order> AsyncPool::OrdersOf(const Relate& relate) const {
  std::map<uint64_t, Order> orders;
  for (const auto& [offset, piece] : pieces_) {
    if (piece.live()) continue;
    Order order = piece.point ? relate(*piece.point) : Order::kOwnStream;
    if (!policies.Allows(order)) order = Order::kNone;  // the pool may add its own dependency behind any free
    if (policies.Allows(order)) orders[offset] = order;
  }
  return orders;
}

std::vector<AsyncExtent> AsyncPool::Runs(const AsyncExtent& within, Order worst,
                                         const std::map<uint64_t, Order>& orders) const {
  std::vector<AsyncExtent> runs;
  for (auto piece = std::prev(pieces_.upper_bound(within.offset));
       piece != pieces_.end() && piece->first < EndOf(within); ++piece) {
    const auto order = orders.find(piece->first);
    if (order == orders.end() || order->second > worst) continue;
    const uint64_t start = std::max(piece->first, within.offset);
    const uint64_t end = std::min(piece->first + piece->second.bytes, EndOf(within));
    if (!runs.empty() && EndOf(runs.back()) == start) {
      runs.back().bytes += end - start;
    } else {
      runs.push_back({start, end - start});
    }
  }
  return runs;
}

// Takes the best fit; among equals the lowest.
std::optional<AsyncExtent> AsyncPool::FitReserved(uint64_t bytes, Order worst,
                                                  const std::map<uint64_t, Order>& orders) const {
  std::optional<AsyncExtent> best;
  for (const auto& [start, end] : steps_) {
    for (const AsyncExtent& run : Runs({start, end - start}, worst, orders)) {
      if (run.bytes >= bytes && (!best || run.bytes < best->bytes)) best = run;
    }
  }
  if (best) best->bytes = bytes;
  return best;
}

std::vector<AsyncExtent> AsyncPool::Missing(const AsyncExtent& place) const {
  std::vector<AsyncExtent> missing;
  uint64_t reached = place.offset / kStep * kStep;
  const uint64_t end = RoundUp(EndOf(place), kStep);
  while (reached < end) {
    const auto next = steps_.upper_bound(reached);
    if (next != steps_.begin() && std::prev(next)->second > reached) {
      reached = std::prev(next)->second;
      continue;
    }
    const uint64_t gap_end = next == steps_.end() ? end : std::min(end, next->first);
    missing.push_back({reached, gap_end - reached});
    reached = gap_end;
  }
  return missing;
}

namespace {

uint64_t Total(const std::vector<AsyncExtent>& extents) {
  uint64_t total = 0;
  for (const AsyncExtent& extent : extents) total += extent.bytes;
  return total;
}

}  // namespace

// Finds the place that needs the fewest new steps. It starts at free memory, or at a border of reserved memory.
std::optional<AsyncExtent> AsyncPool::FitGrowing(uint64_t bytes, const std::map<uint64_t, Order>& orders) const {
  std::optional<AsyncExtent> best;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  const auto consider = [&](const AsyncExtent& run, uint64_t start) {
    if (start < run.offset || start > EndOf(run) || EndOf(run) - start < bytes) return;
    const uint64_t growth = Total(Missing({start, bytes}));
    if (growth >= least) return;
    least = growth;
    best = AsyncExtent{start, bytes};
  };
  for (const AsyncExtent& run : Runs({0, span_}, Order::kDone, orders)) {
    consider(run, run.offset);
    for (const auto& [start, end] : steps_) {
      consider(run, start);
      consider(run, end);
    }
  }
  if (best && (reserved.current > limit_ || least > limit_ - reserved.current)) return std::nullopt;
  return best;
}

std::optional<AsyncPool::Plan> AsyncPool::Find(uint64_t bytes, const Relate& relate) const {
  const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, kAlignment);
  if (!rounded || *rounded > span_) return std::nullopt;
  const std::map<uint64_t, Order> orders = OrdersOf(relate);
  std::optional<AsyncExtent> place;
  for (const Order worst : {Order::kOwnStream, Order::kBehindEvents, Order::kDone}) {
    if (!place) place = FitReserved(*rounded, worst, orders);
  }
  if (!place) place = FitGrowing(*rounded, orders);
  return place ? std::optional<Plan>(PlanFor(bytes, *place, orders)) : std::nullopt;
}

std::optional<AsyncPool::Plan> AsyncPool::FindDepending(uint64_t bytes, const Relate& relate) const {
  const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, kAlignment);
  if (!rounded) return std::nullopt;
  const std::map<uint64_t, Order> orders = OrdersOf(relate);
  const std::optional<AsyncExtent> place = FitReserved(*rounded, Order::kNone, orders);
  return place ? std::optional<Plan>(PlanFor(bytes, *place, orders)) : std::nullopt;
}

AsyncPool::Plan AsyncPool::PlanFor(uint64_t bytes, const AsyncExtent& place,
                                   const std::map<uint64_t, Order>& orders) const {
  Plan plan{place, bytes, Missing(place), {}};
  for (auto piece = std::prev(pieces_.upper_bound(place.offset)); piece != pieces_.end() && piece->first < EndOf(place);
       ++piece) {
    // A stream orders its own frees before the allocation already.
    if (orders.at(piece->first) != Order::kOwnStream) plan.after.push_back(piece->second.point->operation);
  }
  return plan;
}

AsyncPool::Pieces::iterator AsyncPool::SplitAt(uint64_t offset) {
  auto holding = std::prev(pieces_.upper_bound(offset));
  if (holding->first == offset) return holding;
  Piece rest = holding->second;
  rest.bytes = holding->first + holding->second.bytes - offset;
  holding->second.bytes = offset - holding->first;
  return pieces_.emplace(offset, std::move(rest)).first;
}

void AsyncPool::Take(const Plan& plan) {
  for (const AsyncExtent& growth : plan.growth) AddStretch(steps_, growth);
  reserved.Set(reserved.current + Total(plan.growth));
  SplitAt(plan.place.offset);
  if (EndOf(plan.place) != span_) SplitAt(EndOf(plan.place));
  const auto begin = pieces_.find(plan.place.offset);
  pieces_.erase(begin, pieces_.lower_bound(EndOf(plan.place)));
  pieces_[plan.place.offset] = Piece{plan.place.bytes, plan.requested, std::nullopt};
  ++live_;
  used.Set(used.current + plan.requested);
}

bool AsyncPool::Free(uint64_t offset, std::optional<StreamPoint> point) {
  const auto found = pieces_.find(offset);
  if (found == pieces_.end() || !found->second.live()) return false;
  --live_;
  used.Set(used.current - found->second.requested);
  found->second.requested = 0;
  found->second.point = std::move(point);
  MergeAround(found);
  return true;
}

// Of several frees on one stream the last counts, because it runs after the others.
bool AsyncPool::MayMerge(const Piece& left, const Piece& right) const {
  if (left.live() || right.live() || left.point.has_value() != right.point.has_value()) return false;
  return !left.point || left.point->stream == right.point->stream;
}

// Returns the merged piece.
AsyncPool::Pieces::iterator AsyncPool::MergeAround(Pieces::iterator piece) {
  const auto join = [&](Pieces::iterator left, Pieces::iterator right) {
    if (right->second.point && right->second.point->sequence > left->second.point->sequence) {
      left->second.point = std::move(right->second.point);
    }
    left->second.bytes += right->second.bytes;
    pieces_.erase(right);
  };
  const auto next = std::next(piece);
  if (next != pieces_.end() && MayMerge(piece->second, next->second)) join(piece, next);
  if (piece == pieces_.begin()) return piece;
  const auto before = std::prev(piece);
  if (!MayMerge(before->second, piece->second)) return piece;
  join(before, piece);
  return before;
}

void AsyncPool::Settle(const std::function<bool(const StreamPoint&)>& waited_for) {
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (piece->second.live() || !piece->second.point || !waited_for(*piece->second.point)) continue;
    piece->second.point.reset();
    piece = MergeAround(piece);
  }
}

std::vector<AsyncExtent> AsyncPool::Release(uint64_t keep) {
  std::vector<uint64_t> candidates;
  for (const auto& [start, end] : steps_) {
    for (uint64_t step = start; step < end; step += kStep) candidates.push_back(step);
  }
  std::vector<AsyncExtent> released;
  // Releases the highest steps first, so that used memory gathers at the low end.
  for (auto step = candidates.rbegin(); step != candidates.rend() && reserved.current > keep; ++step) {
    const AsyncExtent extent{*step, kStep};
    bool idle = true;
    for (auto piece = std::prev(pieces_.upper_bound(extent.offset));
         idle && piece != pieces_.end() && piece->first < EndOf(extent); ++piece) {
      idle = !piece->second.live() && !piece->second.point;
    }
    if (!idle) continue;
    SplitAt(extent.offset);
    if (EndOf(extent) != span_) SplitAt(EndOf(extent));
    pieces_.erase(pieces_.find(extent.offset), pieces_.lower_bound(EndOf(extent)));
    MergeAround(pieces_.emplace(extent.offset, Piece{kStep, 0, std::nullopt}).first);
    RemoveStretch(steps_, extent);
    reserved.Set(reserved.current - kStep);
    released.push_back(extent);
  }
  return released;
}

std::optional<AsyncExtent> AsyncPool::LiveAt(uint64_t offset) const {
  if (offset >= span_) return std::nullopt;
  const auto holding = std::prev(pieces_.upper_bound(offset));
  const bool inside = holding->second.live() && offset - holding->first < holding->second.requested;
  return inside ? std::optional<AsyncExtent>({holding->first, holding->second.requested}) : std::nullopt;
}

}  // namespace commpool::internal::emulator
