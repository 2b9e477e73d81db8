// register_with and deregister of symmetric pools, and what ranks must agree on before a call to NCCL.
#include <optional>

#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

// The first registration of an epoch. Segments that the pool kept are new to NCCL's communicator, and known to
// registrars.
Status SymmetricMode::AddHome(const std::vector<SegmentToRegister>& segments) {
  domains_.AddHome();
  // In this order: all ranks are in NCCL's call, and a registrar may refuse on one rank alone.
  const ContextGuard current = basis_.MakeCurrent();
  COMMPOOL_TRY(segments_.registrations.Add(home_, segments));
  return segments_.registrations.registrars().RegisterLacking(segments).status();
}

// A communicator that the pool knows keeps the number that the ranks gave it. NCCL may give the address of a destroyed
// one to another communicator: then rank or size mostly differ.
Result<Communicator> SymmetricMode::Examine(ncclComm_t handle) const {
  Communicator described = COMMPOOL_TRY(DescribeCommunicator(basis_.driver, handle, basis_.own_deadline_ms()));
  const int device = basis_.device->device();
  if (described.device != device) {
    return InvalidArgument("the communicator is of device ", described.device, ", the pool of ", device);
  }
  for (const Communicator& held : segments_.registrations.Communicators()) {
    if (held.handle != handle) continue;
    // The handle alone does not tell them apart.
    if (held.rank != described.rank || held.ranks != described.ranks) {
      return FailedPrecondition(
          "the communicator has the address of one that is registered: that was destroyed without "
          "deregister(); abandon() its address first");
    }
    return held;
  }
  described.lost = home_.lost;
  return described;
}

// Without a number the report is for a communicator that this rank has not registered with yet.
DomainReport SymmetricMode::ReportOf(const Communicator& communicator) const {
  DomainReport report;
  // Null: this rank is not in the communicator, and takes part in the agreement alone.
  if (communicator.handle == nullptr) return report;
  report.passed = true;
  report.rank = communicator.rank;
  report.ranks = communicator.ranks;
  if (communicator.handle == home_.handle) report.number = DomainTable::kHome;
  for (const Communicator& held : segments_.registrations.Communicators()) {
    if (held.handle == communicator.handle) report.number = held.number;
  }
  return report;
}

// reserve and wake use it: both register segments with every communicator.
ReportJudge SymmetricMode::JudgeHeld() {
  return [this](const std::vector<DomainReport>& reports)
             COMMPOOL_REQUIRES(basis_.collective) -> Findings { return {domains_.CheckHeld(reports)}; };
}

// NCCL cannot compare communicators. An all-gather over the new one shows which ranks of home are really in it.
Status SymmetricMode::Meet(const DomainReport& mine, Communicator* communicator) {
  Result<Members> met = Members();
  // Only ranks that passed a new communicator meet over it.
  if (mine.passed && !mine.number) {
    met = GatherMembers(basis_.driver, *communicator, home_.rank, basis_.own_deadline_ms(), basis_.runtime.unanswered);
  }
  // Over home, with all ranks: also those that are in no new communicator count the new numbers.
  const std::optional<uint64_t> number = COMMPOOL_TRY(AgreeOnMembers(collective_.channel(), met, domains_));
  communicator->number = number.value_or(communicator->number);
  return Status();
}

// Four steps: look at the communicator; agree on who passed which; let the members of new ones meet and number them;
// register on all ranks, or undo on all.
Status SymmetricMode::RegisterWith(ncclComm_t handle) {
  const nvtx::Range range = basis_.Shown("register_with");
  MutexLock collective(basis_.collective);
  const ContextGuard current = basis_.MakeCurrent();
  // No return before the agreement: the other ranks wait for this one there.
  Status readiness = basis_.CheckOpen();
  Communicator communicator;
  if (readiness.ok() && handle != nullptr) {
    Result<Communicator> described = Examine(handle);
    readiness = described.status();
    if (described.ok()) communicator = *described;
  }
  if (readiness.ok()) readiness = segments_.registrations.CheckNoneEnding(handle);
  const DomainReport report = ReportOf(communicator);
  // A judge runs inside of the agreement, where the channel decides. Each new communicator has to be passed by all of
  // its ranks, and then gets its place among the findings.
  const ReportJudge judge = [this](const std::vector<DomainReport>& reports)
                                COMMPOOL_REQUIRES(basis_.collective) -> Findings {
    Status status = domains_.CheckHeld(reports);
    if (status.ok()) status = domains_.CheckPassedByAll(reports);
    Findings findings = FindingsOf(reports);
    findings.status = status.under("register_with");
    return findings;
  };
  Agreed agreed = COMMPOOL_TRY(
      collective_.Begin({.call = CollectiveCall::kRegister, .readiness = readiness, .report = report, .judge = judge}));
  const Findings& passed = agreed.findings;
  // Numbers from here on are this call's, to be removed where it fails.
  const uint64_t first_new = domains_.next();
  if (passed.any_new) COMMPOOL_TRY(basis_.Named(Meet(report, &communicator).under("register_with")));
  // A repeated call registers nothing new, so its failure must not end what was there.
  const bool known = handle == nullptr || segments_.registrations.Has(handle);
  const auto add = [&] {
    return handle == nullptr ? Status() : segments_.registrations.Add(communicator, segments_.book.List());
  };
  const auto undo = [&](const Status& mine) {
    basis_.collective.AssertHeld();
    const Status undone = mine.ok() && !known ? segments_.registrations.Remove(handle) : Status();
    if (!undone.ok()) Log(LogLevel::kWarning, basis_.title + ": abandon it before it ends: " + undone.message());
    // A number stays only where all ranks have registered.
    domains_.RemoveFrom(first_new);
  };
  COMMPOOL_TRY(collective_.Run({"registering with a communicator", add, undo}));
  // Home was passed, which has a fixed number: it may have been abandoned before, and forgotten by the table.
  if (passed.home) domains_.AddHome();
  return Status();
}

// A null handle means that this rank is not in the communicator. It takes part in all rounds, and ends nothing.
Status SymmetricMode::Deregister(ncclComm_t handle) {
  const nvtx::Range range = basis_.Shown("deregister");
  MutexLock collective(basis_.collective);
  if (basis_.life.closed()) return Status();  // nothing is registered
  const ContextGuard current = basis_.MakeCurrent();
  // Not held is no error by itself: the judge compares which ranks hold it.
  const bool held = segments_.registrations.Has(handle);
  std::vector<uint64_t> ended;  // the judge fills it in, on the ranks that have the table of domains
  // The judge has two pointers, which std::function stores without an allocation.
  const ReportJudge judge = [this, &ended](const std::vector<DomainReport>& reports)
                                COMMPOOL_REQUIRES(basis_.collective) -> Findings {
    ended = NumbersPassed(reports);
    return {domains_.CheckPassedByHolders(reports).under("deregister")};
  };
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kDeregister,
                                  .readiness = basis_.device->health().first_error(),
                                  .report = held ? ReportOf({.handle = handle, .ranks = 1}) : DomainReport(),
                                  .judge = judge}));
  COMMPOOL_TRY(collective_.AwaitDevices());
  const auto deregister = [&] {
    basis_.collective.AssertHeld();
    for (const uint64_t number : ended) domains_.Remove(number);
    return handle == nullptr ? Status() : segments_.registrations.Remove(handle);
  };
  return collective_.Run({"deregistering", deregister});
}

// Each rank has libraries of its own, or none. NCCL is not called, so the ranks compare nothing but the outcome.
Status SymmetricMode::AddRegistrar(const RegistrarRequest& request) {
  MutexLock collective(basis_.collective);
  const ContextGuard current = basis_.MakeCurrent();
  RegistrarBook& registrars = segments_.registrations.registrars();
  const Status readiness = request.ok() ? basis_.CheckOpen() : request.status();
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kAddRegistrar, .readiness = readiness}));
  // Begin fails on every rank where a request is an error.
  // Nothing: this rank has no such library, and only takes part in the rounds.
  const std::optional<Registrar>& registrar = *request;
  const auto add = [&] {
    return registrar ? registrars.Add(*registrar, segments_.Traits(), segments_.book.List()) : Status();
  };
  const auto undo = [&](const Status& mine) {
    if (mine.ok() && registrar) static_cast<void>(registrars.Remove(registrar->name, RegistrarBook::Farewell::kUntold));
  };
  return collective_.Run({"registering with a registrar", add, undo});
}

// The device is quiet first, as for NCCL: running work may use the library's registration.
Status SymmetricMode::RemoveRegistrar(const std::string& name) {
  MutexLock collective(basis_.collective);
  if (basis_.life.closed()) return Status();  // nothing is registered
  const ContextGuard current = basis_.MakeCurrent();
  COMMPOOL_TRY(collective_.Begin(
      {.call = CollectiveCall::kRemoveRegistrar, .readiness = basis_.device->health().first_error()}));
  COMMPOOL_TRY(collective_.AwaitDevices());
  return collective_.Run({"deregistering", [&] { return segments_.registrations.registrars().Remove(name); }});
}

}  // namespace commpool::internal
