// One call that an audit watches, from before it until after it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/interpose/audit/ledger.h"
#include "src/interpose/audit/physical_book.h"

namespace commpool::audit {

enum class Outcome { kDone, kFailed, kOutOfMemory };

struct Event {
  using Clock = std::chrono::steady_clock;

  explicit Event(const char* name) : call(name) {}

  void Start() { began = Clock::now(); }
  void End(Outcome how, int result_code) {
    nanoseconds = static_cast<uint64_t>((Clock::now() - began).count());
    outcome = how;
    result = result_code;
  }
  bool done() const { return outcome == Outcome::kDone; }

  const char* call;
  Clock::time_point began;
  uint64_t nanoseconds = 0;
  Outcome outcome = Outcome::kFailed;
  int result = 0;

  // What accounts note before the call, for after it.
  std::vector<std::pair<uint64_t, Holding>> taken;  // by key: what the call is to end
  std::vector<MappedPart> unmapped;
  PhysicalId physical = kNoPhysical;
  int device = kNoDevice;
  std::optional<int64_t> free_before;
  int64_t held_before = 0;
};

}  // namespace commpool::audit
