#include "src/pool/symmetric/symmetric_growth.h"

#include <string>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/try.h"

namespace commpool::internal {

Status SymmetricGrowth::Run() {
  const auto named = [](const char* what) {
    return [what](const OfPool& pool) { return std::string(what) + " a segment of " + FormatBytes(pool.bytes); };
  };
  Make();
  COMMPOOL_TRY(AgreeOn(named("making")));
  Register();
  Status status = AgreeOn(named("registering"));
  if (!status.ok()) {
    Undo();
    return status;
  }
  for (OfPool& pool : pools_) {
    MutexLock growth(pool.segments.growth());
    pool.segments.Adopt(std::move(pool.made.front()));
  }
  return Status();
}

void SymmetricGrowth::OneByOne(Status (*act)(OfPool& pool)) {
  for (OfPool& pool : pools_) {
    pool.status = Attempt([&] { return act(pool); });
    if (!pool.status.ok()) return;
  }
}

void SymmetricGrowth::Make() {
  OneByOne([](OfPool& pool) {
    MutexLock growth(pool.segments.growth());
    Room room = COMMPOOL_TRY(pool.segments.TakeRoom(pool.bytes));
    Result<NewSegment> made = pool.segments.Make(pool.bytes, std::move(room));
    if (!made.ok()) return made.status();
    pool.made.push_back(std::move(*made));
    return Status();
  });
}

void SymmetricGrowth::Register() {
  for (OfPool& pool : pools_) {
    MutexLock lock(pool.blocks.mutex());
    pool.index = pool.blocks.engine<engine::SymmetricEngine>().SegmentsEver();
  }
  OneByOne([](OfPool& pool) {
    const NewSegment& made = pool.made.front();
    return pool.segments.registrations().RegisterSegment({pool.index, made->address(), made->bytes()});
  });
}

void SymmetricGrowth::Undo() {
  for (OfPool& pool : pools_) {
    pool.status = Attempt([&] { return pool.segments.registrations().DeregisterSegment(pool.index); });
  }
  static_cast<void>(AgreeOn([](const OfPool&) { return std::string("undoing the registration"); }));
  // Where one rank could not, or is lost, a peer or NCCL may still hold this memory.
  for (OfPool& pool : pools_) {
    if (!pool.status.ok()) pool.segments.SetAside(std::move(pool.made));
  }
}

Status SymmetricGrowth::AgreeOn(FunctionRef<std::string(const OfPool& pool)> step) {
  ReservedVector<PoolOutcome> outcomes;
  for (OfPool& pool : pools_) {
    Insist([&] { outcomes.push_back({pool.collective, step(pool), pool.status}); });
  }
  const Status all = Collective::AgreeOn(outcomes);
  for (size_t place = 0; place < pools_.size(); ++place) pools_[place].status = std::move(outcomes[place].status);
  return all;
}

}  // namespace commpool::internal
