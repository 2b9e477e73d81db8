#include "tools/cli/replay/least_reservation.h"

#include <variant>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/engine/symmetric_engine.h"

namespace commpool::cli {

namespace {

using internal::engine::Address;
using internal::engine::FreeOrder;
using internal::engine::Outcome;
using internal::engine::Served;
using internal::engine::SymmetricEngine;

constexpr uint64_t kStep = 2 * internal::kMiB;

bool Suffices(const Trace& trace, uint64_t bytes) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kStep, bytes});
  std::vector<Address> blocks(trace.blocks, 0);
  for (const TraceEvent& event : trace.events) {
    if (!event.allocates()) {
      COMMPOOL_CHECK(engine.Free(blocks[event.block]).ok(), "a trace frees a block that does not live");
      continue;
    }
    const Result<Outcome> outcome = engine.Allocate(event.bytes, event.stream);
    const Served* const served = outcome.ok() ? std::get_if<Served>(&*outcome) : nullptr;
    if (served == nullptr) return false;
    blocks[event.block] = served->address;
  }
  return true;
}

}  // namespace

uint64_t FindLeastReservation(const Trace& trace) {
  uint64_t too_little = internal::RoundUp(trace.peak_requested_bytes, kStep) - kStep;
  uint64_t enough = too_little + kStep;
  for (uint64_t stride = kStep; !Suffices(trace, enough); stride *= 2) {
    too_little = enough;
    enough += stride;
  }
  while (enough - too_little > kStep) {
    const uint64_t middle = too_little + internal::RoundDown((enough - too_little) / 2, kStep);
    (Suffices(trace, middle) ? enough : too_little) = middle;
  }
  return enough;
}

}  // namespace commpool::cli
