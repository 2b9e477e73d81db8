#include "src/registration/registration_set.h"

#include <algorithm>
#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/log.h"
#include "src/base/try.h"

namespace commpool::internal {

RegistrationSet::~RegistrationSet() {
  // No NCCL call in a destructor (rule 1): what is left stays registered until the process ends.
  if (registrations() != 0) {
    Log(LogLevel::kWarning, std::to_string(registrations()) +
                                " registrations outlive their pool: call close(), deregister() or abandon() first");
  }
  for (const Communicator& communicator : Communicators()) Forget(communicator.handle);
}

ReservedVector<Communicator> RegistrationSet::Communicators() const {
  MutexLock lock(mutex_);
  ReservedVector<Communicator> communicators;
  for (const Member& member : members_) communicators.push_back(member.communicator);
  return communicators;
}

bool RegistrationSet::Has(ncclComm_t communicator) const {
  MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.communicator.handle == communicator; });
}

bool RegistrationSet::empty() const {
  MutexLock lock(mutex_);
  return members_.empty();
}

bool RegistrationSet::Lacks(ncclComm_t communicator, uint32_t index) const {
  MutexLock lock(mutex_);
  for (const Member& member : members_) {
    if (member.communicator.handle == communicator) return !member.ranges.contains(index);
  }
  return false;
}

Status RegistrationSet::RegisterOne(const Communicator& communicator, const SegmentToRegister& segment) {
  // Before NCCL knows the segment, while the other ranks are on their way into its call.
  if (kind_ == RegistrationKind::kWindow) Insist([&] { windows_.MakeRoom(); });
  UnfinishedRange unfinished;
  Result<RegisteredRange> range =
      RegisterRange(driver_, communicator, kind_, segment.address, segment.bytes, deadline_ms_, &unfinished);
  if (unfinished != nullptr) {
    RememberUnfinished({.communicator = communicator, .segment = segment.index, .range = std::move(unfinished)});
  }
  if (!range.ok()) return range.status();
  if (kind_ == RegistrationKind::kWindow) {
    windows_.Add({communicator.handle, range->address, range->bytes, range->window});
  }
  // The index shows windows before the set remembers them: abandoning the communicator hides what is remembered.
  if (!Remember(communicator.handle, segment.index, *range)) HideWindow(communicator.handle, *range);
  return Status();
}

bool RegistrationSet::Remember(ncclComm_t communicator, uint32_t index, const RegisteredRange& range) {
  MutexLock lock(mutex_);
  for (Member& member : members_) {
    if (member.communicator.handle != communicator) continue;
    member.ranges.emplace(index, range);
    return true;
  }
  return false;
}

void RegistrationSet::RememberUnfinished(UnfinishedRegistration registration) {
  MutexLock lock(mutex_);
  const bool known = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.communicator.handle == registration.communicator.handle;
  });
  if (known) unfinished_.Add(std::move(registration));
}

bool RegistrationSet::HasUnfinished(ncclComm_t communicator) const {
  MutexLock lock(mutex_);
  return unfinished_.AnyWith(communicator);
}

void RegistrationSet::HideWindow(ncclComm_t communicator, const RegisteredRange& range) {
  if (range.kind == RegistrationKind::kWindow) windows_.Remove(communicator, range.address);
}

Status RegistrationSet::DeregisterOne(const Communicator& communicator, uint32_t index) {
  RegisteredRange range;
  {
    MutexLock lock(mutex_);
    const auto member = std::find_if(members_.begin(), members_.end(), [&](const Member& candidate) {
      return candidate.communicator.handle == communicator.handle;
    });
    if (member == members_.end()) return Status();
    const auto found = member->ranges.find(index);
    if (found == member->ranges.end()) return Status();
    range = found->second;
    member->ranges.erase(found);
  }
  HideWindow(communicator.handle, range);
  Status status = DeregisterRange(driver_, communicator, range, deadline_ms_);
  if (!status.ok()) held_.Note(range);
  return status;
}

Status RegistrationSet::Add(const Communicator& communicator, const std::vector<SegmentToRegister>& segments) {
  const bool known = Has(communicator.handle);
  if (!known) {
    MutexLock lock(mutex_);
    const auto place =
        std::upper_bound(members_.begin(), members_.end(), communicator.number,
                         [](uint64_t number, const Member& member) { return number < member.communicator.number; });
    members_.insert(place, Member{.communicator = communicator});
  }
  ReservedVector<uint32_t> made;
  for (const SegmentToRegister& segment : segments) {
    if (!Lacks(communicator.handle, segment.index)) continue;
    Status status = Attempt([&] { return RegisterOne(communicator, segment); });
    if (!status.ok()) {
      for (const uint32_t index : made) static_cast<void>(DeregisterOne(communicator, index));
      // Whoever gives the communicator up ends what NCCL has not finished there.
      if (!known && !HasUnfinished(communicator.handle)) Forget(communicator.handle);
      return status;
    }
    made.push_back(segment.index);
  }
  return Status();
}

Status RegistrationSet::RegisterSegment(const SegmentToRegister& segment) {
  for (const Communicator& communicator : Communicators()) {
    if (!Lacks(communicator.handle, segment.index)) continue;
    COMMPOOL_TRY(Attempt([&] { return RegisterOne(communicator, segment); }));
  }
  return Status();
}

Result<uint64_t> RegistrationSet::RegisterPending(const std::vector<SegmentToRegister>& segments) {
  ReservedVector<std::pair<Communicator, uint32_t>> made;
  for (const Communicator& communicator : Communicators()) {
    for (const SegmentToRegister& segment : segments) {
      if (!Lacks(communicator.handle, segment.index)) continue;
      Status status = Attempt([&] { return RegisterOne(communicator, segment); });
      if (!status.ok()) {
        for (const auto& [owner, index] : made) static_cast<void>(DeregisterOne(owner, index));
        return status;
      }
      made.emplace_back(communicator, segment.index);
    }
  }
  return uint64_t{made.size()};
}

Status RegistrationSet::DeregisterSegment(uint32_t index) {
  Status first;
  for (const Communicator& communicator : Communicators()) {
    Status status = DeregisterOne(communicator, index);
    if (first.ok()) first = status;
  }
  if (!first.ok()) return first;
  MutexLock lock(mutex_);
  return unfinished_.CheckNoneOf(index);
}

Status RegistrationSet::Remove(ncclComm_t communicator) {
  ReservedVector<uint32_t> indexes;
  Communicator known;
  {
    MutexLock lock(mutex_);
    for (const Member& member : members_) {
      if (member.communicator.handle != communicator) continue;
      known = member.communicator;
      for (const auto& [index, range] : member.ranges) indexes.push_back(index);
    }
  }
  Status first;
  for (const uint32_t index : indexes) {
    Status status = DeregisterOne(known, index);
    if (first.ok()) first = status;
  }
  Forget(communicator);
  return first;
}

Status RegistrationSet::RemoveAll() {
  Status first;
  for (const Communicator& communicator : Communicators()) {
    Status status = Remove(communicator.handle);
    if (first.ok()) first = status;
  }
  return first;
}

Status RegistrationSet::EndUnfinished(ncclComm_t communicator, uint64_t wait_ms) {
  ReservedVector<UnfinishedRegistration> unfinished;
  {
    MutexLock lock(mutex_);
    unfinished = unfinished_.Take(communicator);
  }
  Status first;
  for (const UnfinishedRegistration& one : unfinished) {
    Status status = internal::EndUnfinished(driver_, one.communicator, *one.range, wait_ms);
    if (status.code() == StatusCode::kDeadlineExceeded) {
      wait_ms = 0;
      continue;
    }
    if (!status.ok()) held_.Note(*one.range);
    if (first.ok()) first = status;
  }
  return first;
}

uint64_t RegistrationSet::Forget(ncclComm_t communicator) {
  ReservedMap<uint32_t, RegisteredRange> dropped;
  ReservedVector<UnfinishedRegistration> unfinished;
  {
    MutexLock lock(mutex_);
    for (Member& member : members_) {
      if (member.communicator.handle == communicator) dropped = std::move(member.ranges);
    }
    unfinished = unfinished_.Take(communicator);
    std::erase_if(members_, [&](const Member& member) { return member.communicator.handle == communicator; });
  }
  uint64_t held = 0;
  for (const auto& [index, range] : dropped) {
    HideWindow(communicator, range);
    held += held_.Note(range);
  }
  for (const UnfinishedRegistration& one : unfinished) {
    if (one.range->window != nullptr) held += held_.Note(*one.range);
  }
  return held;
}

Result<WindowPlace> RegistrationSet::Find(ncclComm_t communicator, CUdeviceptr address) const {
  if (const std::optional<WindowPlace> place = windows_.Find(communicator, address)) return *place;
  return Status(StatusCode::kNotFound, "the pointer's segment has no window on this communicator");
}

bool RegistrationSet::IsRegistered(uint32_t index) const {
  MutexLock lock(mutex_);
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.ranges.contains(index); });
}

bool RegistrationSet::IsRegisteredWith(ncclComm_t communicator) const {
  MutexLock lock(mutex_);
  if (unfinished_.AnyWith(communicator)) return true;
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.communicator.handle == communicator && !member.ranges.empty();
  });
}

uint64_t RegistrationSet::registrations() const {
  MutexLock lock(mutex_);
  uint64_t count = 0;
  for (const Member& member : members_) count += member.ranges.size();
  return count;
}

uint64_t RegistrationSet::pending(uint64_t segments) const {
  MutexLock lock(mutex_);
  uint64_t count = 0;
  for (const Member& member : members_) count += segments - member.ranges.size();
  return count;
}

}  // namespace commpool::internal
