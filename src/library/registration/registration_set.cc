#include "src/library/registration/registration_set.h"

#include <algorithm>
#include <iterator>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// Chooses what is of a communicator.
auto With(ncclComm_t communicator) {
  return [communicator](const auto& one) { return one.communicator.handle == communicator; };
}

// The end where it is not known.
template <typename Members>
auto MemberOf(Members& members, ncclComm_t communicator) {
  return std::find_if(members.begin(), members.end(), With(communicator));
}

uint64_t OrderOf(const std::vector<WindowStep>& steps) {
  uint64_t order = kHashStart;
  for (const auto& [act, window] : steps) order = HashOn(order, 2 * window + (act == WindowStep::Act::kEnd ? 1 : 0));
  return order;
}

}  // namespace

RegistrationSet::~RegistrationSet() {
  // No NCCL call in a destructor (rule 1): what is left stays registered until the process ends.
  if (registrations() != 0) {
    Log(LogLevel::kWarning, std::to_string(registrations()) +
                                " registrations outlive their pool: call close(), deregister() or abandon() first");
  }
  for (const Communicator& communicator : Communicators()) Forget(communicator.handle);
}

std::vector<Communicator> RegistrationSet::Communicators() const {
  MutexLock lock(mutex_);
  std::vector<Communicator> communicators;
  for (const Member& member : members_) communicators.push_back(member.communicator);
  return communicators;
}

bool RegistrationSet::Has(ncclComm_t communicator) const {
  MutexLock lock(mutex_);
  return MemberOf(members_, communicator) != members_.end();
}

bool RegistrationSet::empty() const {
  MutexLock lock(mutex_);
  return members_.empty() && known_.empty();
}

uint64_t RegistrationSet::Count(Choice chosen) const {
  MutexLock lock(mutex_);
  return static_cast<uint64_t>(std::count_if(known_.begin(), known_.end(), chosen));
}

Status RegistrationSet::RegisterOne(const Communicator& communicator, const SegmentToRegister& segment) {
  COMMPOOL_TRY(CheckNotAsleep(driver_, communicator.handle));
  // Two windows over one memory are undefined to NCCL (NCCL#2331). Where an old one stays, this call makes its own all
  // the same: the other ranks are on their way into NCCL.
  static_cast<void>(DeregisterOne(communicator, segment.index));
  const uint64_t began = recording::Now();
  UnfinishedRange unfinished = nullptr;
  Result<RegisteredRange> range =
      RegisterRange(driver_, communicator, kind_, segment.address, segment.bytes, deadline_ms_, unfinished);
  // The book shows windows before the set remembers them: abandoning the communicator hides what is remembered.
  const Status noted = range.ok() ? NoteWindow(communicator, *range) : Status();
  if (range.ok()) RecordMade(communicator.handle, *range, recording::Now() - began);
  bool known = false;
  {
    MutexLock lock(mutex_);
    const auto member = MemberOf(members_, communicator.handle);
    known = member != members_.end();
    if (known && unfinished != nullptr) member->unfinished.emplace_back(segment.index, unfinished);
    if (known && range.ok()) {
      Registration made{.communicator = communicator, .index = segment.index, .range = *range};
      known_.insert(std::upper_bound(known_.begin(), known_.end(), made, ComesBefore), made);
    }
  }
  if (!range.ok()) return range.status();
  if (!known) HideWindow(communicator.handle, *range);  // the communicator was abandoned meanwhile
  if (!noted.ok()) static_cast<void>(DeregisterOne(communicator, segment.index));
  return noted;
}

Result<bool> RegistrationSet::RegisterWhereLacking(const Communicator& communicator, const SegmentToRegister& segment) {
  const auto is_there = [&](const Registration& one) {
    return one.serves && one.communicator.handle == communicator.handle && one.index == segment.index;
  };
  if (!Has(communicator.handle) || Count(is_there) != 0) return false;
  COMMPOOL_TRY(CheckFinished(communicator.handle, segment.index));
  COMMPOOL_TRY(RegisterOne(communicator, segment));
  return true;
}

Result<uint64_t> RegistrationSet::RegisterLacking(const std::vector<Communicator>& communicators,
                                                  const std::vector<SegmentToRegister>& segments) {
  std::vector<std::pair<Communicator, uint32_t>> made;
  for (const Communicator& communicator : communicators) {
    for (const SegmentToRegister& segment : segments) {
      const Result<bool> registered = RegisterWhereLacking(communicator, segment);
      if (!registered.ok()) {
        const Status undone =
            FirstFailureOf(made, [&](const auto& one) { return DeregisterOne(one.first, one.second); });
        return undone.ok() ? registered.status()
                           : Failure(registered.status().code(), registered.status().message(), "; then ",
                                     undone.message(), ": deregister or abandon the communicator before it ends");
      }
      if (*registered) made.emplace_back(communicator, segment.index);
    }
  }
  return uint64_t{made.size()};
}

void RegistrationSet::RecordMade(ncclComm_t communicator, const RegisteredRange& range, uint64_t cost) const {
  if (record_ == nullptr) return;
  const bool window = range.kind == RegistrationKind::kWindow;
  record_->Tell(recording::Registered{
      .address = range.address,
      .bytes = range.bytes,
      .communicator = reinterpret_cast<uint64_t>(communicator),
      .kind = window ? recording::RegistrationEntry::kWindow : recording::RegistrationEntry::kBuffer,
      .cost = cost});
}

void RegistrationSet::RecordPresent() const {
  MutexLock lock(mutex_);
  for (const Registration& one : known_) {
    if (one.serves) RecordMade(one.communicator.handle, one.range, 0);
  }
}

void RegistrationSet::HideWindow(ncclComm_t communicator, const RegisteredRange& range) {
  const auto number = reinterpret_cast<uint64_t>(communicator);
  if (record_ != nullptr) record_->Tell(recording::Deregistered{.address = range.address, .communicator = number});
  if (range.kind == RegistrationKind::kWindow) windows_.Remove(communicator, range.address);
}

Status RegistrationSet::NoteWindow(const Communicator& communicator, const RegisteredRange& range) {
  if (range.kind != RegistrationKind::kWindow) return Status();
  const std::optional<WindowRecord> record = COMMPOOL_TRY(ReadWindowRecord(driver_, communicator, range.window));
  windows_.Add({communicator.handle, range.address, range.bytes, range.window, record});
  return Status();
}

uint64_t RegistrationSet::Hold(const RegisteredRange& range) {
  if (range.kind != RegistrationKind::kWindow || driver_.nccl.ends_windows_in_abort()) return 0;
  MutexLock lock(mutex_);
  held_[range.address] = range.bytes;
  return range.bytes;
}

Status RegistrationSet::DeregisterOne(const Communicator& communicator, uint32_t index) {
  return End(
      [&](const Registration& one) { return one.communicator.handle == communicator.handle && one.index == index; });
}

Status RegistrationSet::End(Choice chosen) {
  std::vector<Registration> ending;
  {
    MutexLock lock(mutex_);
    for (Registration& one : known_) {
      if (!chosen(one)) continue;
      ending.push_back(one);
      one.serves = false;
    }
  }
  return FirstFailureOf(ending, [&](const Registration& one) {
    if (one.serves) HideWindow(one.communicator.handle, one.range);
    const auto is_it = [&](const Registration& other) {
      return With(one.communicator.handle)(other) && other.range == one.range;
    };
    if (Count(is_it) == 0) return Status();  // the communicator was abandoned meanwhile
    Status ended = DeregisterRange(driver_, one.communicator, one.range, deadline_ms_);
    // NCCL has taken the call whose end takes too long: it may not get the handle again.
    const bool late = ended.code() == StatusCode::kDeadlineExceeded;
    if (late) Hold(one.range);
    MutexLock lock(mutex_);
    const auto known = std::find_if(known_.begin(), known_.end(), is_it);
    if ((late || ended.ok()) && known != known_.end()) known_.erase(known);
    return ended;
  });
}

Status RegistrationSet::Add(const Communicator& communicator, const std::vector<SegmentToRegister>& segments) {
  const bool known = Has(communicator.handle);
  if (!known) {
    MutexLock lock(mutex_);
    const auto number = [](const Member& member) { return member.communicator.number; };
    const auto place = std::ranges::upper_bound(members_, communicator.number, {}, number);
    members_.insert(place, Member{.communicator = communicator});
  }
  Status status = RegisterLacking({communicator}, segments).status();
  // The call that gives the communicator up ends what NCCL has not finished there.
  if (!status.ok() && !known && !ServesAny(communicator.handle)) Drop(communicator.handle);
  return status;
}

Status RegistrationSet::RegisterSegment(const SegmentToRegister& segment) {
  for (const Communicator& communicator : Communicators()) COMMPOOL_TRY(RegisterWhereLacking(communicator, segment));
  return Status();
}

Status RegistrationSet::CheckNoneEnding(ncclComm_t communicator) const {
  const auto is_ending = [&](const Registration& one) { return !one.serves && With(communicator)(one); };
  if (Count(is_ending) == 0) return Status();
  return FailedPrecondition(
      "NCCL has not ended earlier registrations with the communicator: deregister it again first");
}

Result<uint64_t> RegistrationSet::RegisterPending(const std::vector<SegmentToRegister>& segments) {
  for (const Communicator& communicator : Communicators()) COMMPOOL_TRY(CheckNoneEnding(communicator.handle));
  const RegistrarBook::Made made = COMMPOOL_TRY(registrars_.RegisterLacking(segments));
  Result<uint64_t> with_communicators = RegisterLacking(Communicators(), segments);
  if (!with_communicators.ok()) registrars_.Undo(made);
  return with_communicators.ok() ? Result<uint64_t>(*with_communicators + made.size()) : with_communicators;
}

Status RegistrationSet::DeregisterSegment(uint32_t index) {
  Status first = registrars_.DeregisterSegment(index);
  KeepFirst(first, End([&](const Registration& one) { return one.index == index; }));
  return first.ok() ? CheckFinished(nullptr, index) : first;
}

Status RegistrationSet::CheckFinished(ncclComm_t communicator, std::optional<uint32_t> index) const {
  MutexLock lock(mutex_);
  for (const Member& member : members_) {
    if (communicator != nullptr && member.communicator.handle != communicator) continue;
    for (const auto& [segment, range] : member.unfinished) {
      if (index.value_or(segment) != segment) continue;
      return DeadlineExceeded("NCCL has not finished a registration of segment ", segment,
                              ": abandon the communicator, and abort it");
    }
  }
  return Status();
}

Status RegistrationSet::Remove(ncclComm_t communicator) {
  Status ended = End(With(communicator));
  const Status finished = CheckFinished(communicator);
  if (finished.ok()) Drop(communicator);
  return ended.ok() ? finished : ended;
}

Status RegistrationSet::RemoveAll() {
  Status first = registrars_.RemoveAll();
  KeepFirst(first, End([](const Registration&) { return true; }));
  KeepFirst(first, CheckFinished());
  for (const Communicator& communicator : Communicators()) {
    if (CheckFinished(communicator.handle).ok()) Drop(communicator.handle);
  }
  return first;
}

Status RegistrationSet::EndUnfinished(ncclComm_t communicator, uint64_t wait_ms) {
  Member ending;
  {
    MutexLock lock(mutex_);
    const auto member = MemberOf(members_, communicator);
    if (member == members_.end()) return Status();
    ending.communicator = member->communicator;
    std::swap(ending.unfinished, member->unfinished);
  }
  Status first;
  for (const auto& [index, range] : ending.unfinished) {
    Status status = internal::EndUnfinished(driver_, ending.communicator, *range, wait_ms);
    if (status.code() == StatusCode::kDeadlineExceeded) {
      wait_ms = 0;
      continue;
    }
    if (!status.ok()) Hold(*range);
    KeepFirst(first, std::move(status));
  }
  return first;
}

// The member goes first: what another thread registers meanwhile finds none, and hides its window itself.
uint64_t RegistrationSet::Forget(ncclComm_t communicator) {
  uint64_t held = Drop(communicator);
  std::vector<Registration> gone;
  {
    MutexLock lock(mutex_);
    std::copy_if(known_.begin(), known_.end(), std::back_inserter(gone), With(communicator));
    std::erase_if(known_, With(communicator));
  }
  for (const Registration& one : gone) {
    if (one.serves) HideWindow(communicator, one.range);
    held += Hold(one.range);
  }
  return held;
}

uint64_t RegistrationSet::Drop(ncclComm_t communicator) {
  Member gone;
  {
    MutexLock lock(mutex_);
    const auto member = MemberOf(members_, communicator);
    if (member == members_.end()) return 0;
    gone = std::move(*member);
    members_.erase(member);
  }
  uint64_t held = 0;
  for (const auto& [index, range] : gone.unfinished) held += range->registered() ? Hold(*range) : 0;
  return held;
}

bool RegistrationSet::IsRegistered(uint32_t index) const {
  return registrars_.IsRegistered(index) || Count([&](const Registration& one) { return one.index == index; }) != 0 ||
         !CheckFinished(nullptr, index).ok();
}

bool RegistrationSet::IsRegisteredWith(ncclComm_t communicator) const {
  return ServesAny(communicator) || Count(With(communicator)) != 0;
}

bool RegistrationSet::ServesAny(ncclComm_t communicator) const {
  const auto serves = [&](const Registration& one) { return one.serves && With(communicator)(one); };
  return Has(communicator) && (!CheckFinished(communicator).ok() || Count(serves) != 0);
}

uint64_t RegistrationSet::registrations() const {
  return registrars_.registrations() + Count([](const Registration&) { return true; });
}

uint64_t RegistrationSet::held_bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [address, held] : held_) bytes += held;
  return bytes;
}

uint64_t RegistrationSet::pending(uint64_t segments) const {
  uint64_t count = registrars_.pending(segments);
  for (const Communicator& communicator : Communicators()) {
    const auto serves = [&](const Registration& one) { return one.serves && With(communicator.handle)(one); };
    count += segments - std::min(segments, Count(serves));
  }
  return count;
}

// How the windows of a pool end together, as it falls asleep, and come back to their places.
Result<std::vector<ReturnReport>> RegistrationSet::PlanReturn() {
  ForgetReturn();
  std::vector<ReturnReport> reports;
  std::vector<Return> plans;
  for (const Communicator& communicator : Communicators()) {
    Return& plan = plans.emplace_back(Return{.communicator = communicator});
    {
      MutexLock lock(mutex_);
      for (const auto& [owner, index, range, serves] : known_) {
        if (!serves || owner.handle != communicator.handle) continue;
        plan.windows.push_back({{index, range.address, range.bytes}, std::nullopt});
      }
    }
    std::vector<CUdeviceptr> addresses;
    for (auto& [segment, record] : plan.windows) {
      addresses.push_back(segment.address);
      record = windows_.RecordOf(communicator.handle, segment.address);
    }
    Result<std::vector<WindowStep>> steps = windows_.FindReturn(communicator.handle, addresses);
    if (!steps.ok()) return steps.status().under("communicator " + std::to_string(communicator.number));
    plan.steps = std::move(*steps);
    reports.push_back({communicator.number, OrderOf(plan.steps)});
  }
  returns_ = std::move(plans);
  return reports;
}

Status RegistrationSet::RegisterAgain(const std::vector<SegmentToRegister>& segments) {
  for (const Communicator& communicator : Communicators()) {
    const auto plan = MemberOf(returns_, communicator.handle);
    if (plan != returns_.end() && !ServesAny(communicator.handle)) {
      for (const WindowStep& step : plan->steps) {
        const SegmentToRegister& segment = plan->windows[step.window].first;
        COMMPOOL_TRY(step.act == WindowStep::Act::kRegister ? RegisterOne(communicator, segment)
                                                            : DeregisterOne(communicator, segment.index));
      }
    }
    for (const SegmentToRegister& segment : segments) COMMPOOL_TRY(RegisterWhereLacking(communicator, segment));
  }
  return registrars_.RegisterLacking(segments).status();
}

std::string RegistrationSet::DescribeMoved() const {
  std::string first;
  size_t moved = 0;
  size_t windows = 0;
  for (const Return& plan : returns_) {
    if (!Has(plan.communicator.handle)) continue;
    windows += plan.windows.size();
    for (const auto& [segment, record] : plan.windows) {
      if (windows_.RecordOf(plan.communicator.handle, segment.address) == record) continue;
      if (moved++ == 0) {
        first = "segment " + std::to_string(segment.index) + " (" + FormatBytes(segment.bytes) +
                ") with communicator " + std::to_string(plan.communicator.number);
      }
    }
  }
  if (moved == 0) return "";
  return std::to_string(moved) + " of " + std::to_string(windows) + " windows, first that of " + first;
}

}  // namespace commpool::internal
