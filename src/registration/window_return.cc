// How the windows of a pool end together, as it falls asleep, and come back to their places.
#include <algorithm>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/try.h"
#include "src/registration/registration_set.h"

namespace commpool::internal {

namespace {

std::vector<WindowStep> OneAfterTheOther(size_t windows) {
  std::vector<WindowStep> steps;
  for (size_t window = 0; window < windows; ++window) steps.push_back({WindowStep::Act::kRegister, window});
  return steps;
}

// Adds steps to the number of those before: 0 while all windows come one after the other. Small: ranks compare it as
// part of a number of bytes.
uint64_t WithSteps(uint64_t number, const std::vector<WindowStep>& steps, size_t windows) {
  constexpr uint64_t kLargestPrimeBelowMega = 1048573;
  const bool plain = steps == OneAfterTheOther(windows);
  if (plain && number == 0) return 0;
  for (const WindowStep& step : steps) {
    const uint64_t act = step.act == WindowStep::Act::kEnd ? 1 : 0;
    number = (number * 31 + 2 * step.window + act + 1) % kLargestPrimeBelowMega;
  }
  return number + 1;
}

}  // namespace

Result<RegistrationSet::Return> RegistrationSet::PlanReturnOf(const Communicator& communicator) const {
  Return plan{.communicator = communicator.handle};
  {
    MutexLock lock(mutex_);
    for (const Member& member : members_) {
      if (member.communicator.handle != communicator.handle) continue;
      for (const auto& [index, range] : member.ranges) plan.segments.push_back({index, range.address, range.bytes});
    }
  }
  std::vector<CUdeviceptr> addresses;
  for (const SegmentToRegister& segment : plan.segments) {
    addresses.push_back(segment.address);
    plan.records.push_back(placed_->Find(communicator.handle, segment.address));
  }
  plan.steps = COMMPOOL_TRY(placed_->FindReturn(communicator.handle, addresses));
  return plan;
}

Result<uint64_t> RegistrationSet::PlanReturn() {
  ForgetReturn();
  if (kind_ != RegistrationKind::kWindow || placed_ == nullptr) return uint64_t{0};
  const ReservedVector<Communicator> communicators = Communicators();
  uint64_t number = 0;
  for (const Communicator& communicator : communicators) {
    Result<Return> plan = PlanReturnOf(communicator);
    if (!plan.ok()) {
      ForgetReturn();
      return plan.status().under("communicator " + std::to_string(communicator.number));
    }
    // A communicator of some ranks alone is theirs to compare: for the others it has no steps.
    if (communicator.ranks == communicators[0].ranks) number = WithSteps(number, plan->steps, plan->segments.size());
    returns_.push_back(std::move(*plan));
  }
  return number;
}

Status RegistrationSet::Carry(const WindowStep& step, const Communicator& communicator,
                              const SegmentToRegister& segment) {
  return step.act == WindowStep::Act::kRegister ? RegisterOne(communicator, segment)
                                                : DeregisterOne(communicator, segment.index);
}

Status RegistrationSet::RegisterAgain(const std::vector<SegmentToRegister>& segments) {
  for (const Communicator& communicator : Communicators()) {
    const auto plan = std::find_if(returns_.begin(), returns_.end(),
                                   [&](const Return& one) { return one.communicator == communicator.handle; });
    if (plan != returns_.end() && !IsRegisteredWith(communicator.handle)) {
      for (const WindowStep& step : plan->steps) {
        COMMPOOL_TRY(Attempt([&] { return Carry(step, communicator, plan->segments[step.window]); }));
      }
    }
    for (const SegmentToRegister& segment : segments) {
      if (!Lacks(communicator.handle, segment.index)) continue;
      COMMPOOL_TRY(Attempt([&] { return RegisterOne(communicator, segment); }));
    }
  }
  return Status();
}

std::string RegistrationSet::DescribeMoved() const {
  std::string first;
  size_t moved = 0;
  size_t windows = 0;
  for (const Communicator& communicator : Communicators()) {
    for (const Return& plan : returns_) {
      if (plan.communicator != communicator.handle) continue;
      for (size_t place = 0; place < plan.segments.size(); ++place) {
        const SegmentToRegister& segment = plan.segments[place];
        ++windows;
        if (placed_->Find(plan.communicator, segment.address) == plan.records[place]) continue;
        if (moved++ == 0) {
          first = "segment " + std::to_string(segment.index) + " (" + FormatBytes(segment.bytes) +
                  ") with communicator " + std::to_string(communicator.number);
        }
      }
    }
  }
  if (moved == 0) return "";
  return std::to_string(moved) + " of " + std::to_string(windows) + " windows, first that of " + first;
}

}  // namespace commpool::internal
