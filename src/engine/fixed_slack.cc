#include "src/engine/fixed_slack.h"

#include <algorithm>

#include "src/base/bytes.h"

namespace commpool::internal::engine {

namespace {

// Of what the pool needs, one part in so many. Found by replaying traces.
constexpr uint64_t kShare = 128;
constexpr uint64_t kCalmShare = 32;
constexpr uint64_t kLeast = 64 * kMiB;

// So many segments come back in the place of others, which costs the driver under a second. A program that would have
// more of them needs them in every step.
constexpr uint64_t kMostRemade = 2048;

}  // namespace

uint64_t FixedSlack::Excess(const Counters& counters, uint64_t requested, uint64_t segment_bytes,
                            uint64_t reserved_by_name) const {
  const uint64_t needed = std::max(counters.requested_bytes.peak, counters.requested_bytes.current + requested);
  const uint64_t slack = std::max(needed / (IsCalm() ? kCalmShare : kShare), kLeast);
  const uint64_t after = counters.reserved_bytes.current + segment_bytes;
  return after - std::min(after, needed + slack + reserved_by_name);
}

void FixedSlack::CountMade(const Counters& counters, uint64_t segment_bytes) {
  if (counters.requested_bytes.peak > most_requested_) {
    most_requested_ = counters.requested_bytes.peak;
    remade_ = 0;
  }
  if (counters.reserved_bytes.current + segment_bytes <= counters.reserved_bytes.peak) ++remade_;
}

bool FixedSlack::IsCalm() const { return remade_ > kMostRemade; }

}  // namespace commpool::internal::engine
