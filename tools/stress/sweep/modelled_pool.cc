#include "tools/stress/sweep/modelled_pool.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "src/engine/expandable_engine.h"
#include "src/engine/size_classes.h"
#include "src/engine/thread_cache.h"

namespace commpool::cli {

namespace engine = internal::engine;

ModelledPool::Address ModelledPool::Allocate(uint64_t bytes, uint32_t stream) {
  if (bytes <= engine::kSmallBytes) {
    const engine::SizeClass size_class = engine::ClassOf(bytes);
    Cache& cache = caches_[stream];
    const auto bin = cache.bins.find(size_class);
    if (bin != cache.bins.end() && !bin->second.empty()) {
      const Address address = bin->second.back();
      bin->second.pop_back();
      cache.bytes -= engine::ClassBytes(size_class);
      cacheable_[address] = {stream, size_class};
      return address;
    }
  }
  PollFences();
  return ServeSlowly(bytes, stream);
}

void ModelledPool::Grow(uint64_t bytes, uint32_t stream) {
  engine::GrowthRequest request{.bytes = bytes, .stream = stream};
  for (bool again = true; again;) {
    const engine::GrowthPlan plan = engine_->PlanGrowth(request).value();
    again = plan.again;
    if (!again) engine_->Claim(plan);
    for (const engine::GrowthStep& step : plan.steps) Do(step);
    if (!again) engine_->Complete(plan);
  }
}

void ModelledPool::Do(const engine::GrowthStep& step) {
  using Kind = engine::GrowthStep::Kind;
  const uint64_t bytes = step.range.bytes;
  switch (step.kind) {
    case Kind::kAsk:
      PollFences();
      return progress_.Poll();
    case Kind::kAwait:
    case Kind::kAwaitDevice:
      waits_ += progress_.Await(static_cast<double>(step.microseconds), [this] { PollFences(); }) ? 1 : 0;
      return;
    case Kind::kAddAddresses:
      static_cast<engine::ExpandableEngine&>(*engine_).AddTerritory({next_range_, kApart}, step.space);
      next_range_ += 2 * kApart;
      return;
    case Kind::kRelease:
      engine_->RemoveSegment(step.segment);
      device_.Unmap(1, bytes);
      device_.Call("cuMemRelease", bytes);
      return device_.Call("cuMemAddressFree", bytes);
    case Kind::kMakeSegment:
      device_.Call("cuMemAddressReserve", bytes);
      device_.Call("cuMemCreate", bytes);
      device_.Call("cuMemMap", bytes);
      device_.Open(1, bytes);
      engine_->AddSegment({next_range_, bytes}, step.space);
      next_range_ += kApart;
      return;
    case Kind::kMakePage:
      return device_.Call("cuMemCreate", bytes);
    case Kind::kUnmap:
      return device_.Unmap(step.pages, bytes);
    case Kind::kMap:
      return device_.Call("cuMemMap", bytes);
    case Kind::kOpen:
      return device_.Open(step.pages, bytes);
  }
}

ModelledPool::Address ModelledPool::ServeSlowly(uint64_t bytes, uint32_t stream) {
  std::optional<Address> served = ServeFrom(bytes, stream, engine::Reuse::kSameStream);
  if (!served && DrainCaches()) served = ServeFrom(bytes, stream, engine::Reuse::kSameStream);
  while (!served) {
    Grow(bytes, stream);
    served = ServeFrom(bytes, stream, engine::Reuse::kSameStream);
    if (!served) served = ServeFrom(bytes, stream, engine::Reuse::kAnyStream);
  }
  return *served;
}

std::optional<ModelledPool::Address> ModelledPool::ServeFrom(uint64_t bytes, uint32_t stream, engine::Reuse reuse) {
  const engine::Outcome outcome = engine_->Allocate(bytes, stream, reuse).value();
  const auto* const served = std::get_if<engine::Served>(&outcome);
  return served == nullptr ? std::nullopt : std::optional(HandOut(*served, bytes, stream));
}

ModelledPool::Address ModelledPool::HandOut(const engine::Served& served, uint64_t requested, uint32_t stream) {
  for (const engine::StreamUse& use : served.waits) {
    const auto fence = fences_.find(use.fence);
    if (use.fence == engine::kNoFence && progress_.IsIdle(use.stream)) continue;
    if (use.fence == engine::kNoFence || fence == fences_.end()) device_.Call("cuEventRecord");
    device_.Call("cuStreamWaitEvent");
    ++device_waits_;
    const double end = fence == fences_.end() ? device_.End(static_cast<uint32_t>(use.stream)) : fence->second.mark.end;
    device_.MakeWait(stream, end);
  }
  if (requested <= engine::kSmallBytes) {
    const engine::SizeClass size_class = engine::ClassOf(requested);
    if (served.bytes == engine::ClassBytes(size_class)) cacheable_[served.address] = {stream, size_class};
  }
  return served.address;
}

void ModelledPool::Free(Address address) {
  const auto found = cacheable_.find(address);
  if (found != cacheable_.end()) {
    const Cacheable block = found->second;
    cacheable_.erase(found);
    if (Give(address, block)) return;
  }
  const internal::engine::Freed freed = engine_->Free(address).value();
  for (const engine::StreamKey stream : freed.streams_to_fence) {
    device_.Call("cuEventRecord");
    const auto on = static_cast<uint32_t>(stream);
    fences_[next_fence_] = {on, device_.Record(on)};
    engine_->AttachFence(address, stream, next_fence_++);
  }
}

bool ModelledPool::Give(Address address, const Cacheable& block) {
  Cache& cache = caches_[block.stream];
  const uint64_t bytes = engine::ClassBytes(block.size_class);
  if (cache.bytes + bytes > engine::ThreadCache::kMostBytes) TakeDownTo(cache, cache.bytes / 2);
  if (cache.bytes + bytes > engine::ThreadCache::kMostBytes) return false;
  cache.bins[block.size_class].push_back(address);
  cache.bytes += bytes;
  return true;
}

void ModelledPool::TakeDownTo(Cache& cache, uint64_t keep_bytes) {
  for (auto& [size_class, blocks] : cache.bins) {
    while (!blocks.empty() && cache.bytes > keep_bytes) {
      static_cast<void>(engine_->Free(blocks.back()).value());
      blocks.pop_back();
      cache.bytes -= engine::ClassBytes(size_class);
    }
  }
}

bool ModelledPool::DrainCaches() {
  bool any = false;
  for (auto& [stream, cache] : caches_) {
    any = any || cache.bytes > 0;
    TakeDownTo(cache, 0);
  }
  return any;
}

void ModelledPool::RecordStream(Address address, uint32_t stream) {
  cacheable_.erase(address);
  static_cast<void>(engine_->RecordStream(address, stream));
}

void ModelledPool::PollFences() {
  std::set<uint32_t> at_work;  // ask no fence behind a stream's first one that has not passed
  for (const engine::Fence fence : engine_->PendingFences()) {
    const auto found = fences_.find(fence);
    if (found == fences_.end() || at_work.contains(found->second.stream)) continue;
    device_.Call("cuEventQuery");
    if (!device_.IsOver(found->second.mark)) {
      at_work.insert(found->second.stream);
      continue;
    }
    fences_.erase(found);
    engine_->FencePassed(fence);
  }
}

}  // namespace commpool::cli
