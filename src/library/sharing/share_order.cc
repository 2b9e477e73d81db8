// How the owner of a shared pool waits for its importers: before an update of a block, and before the pool sleeps.
#include <algorithm>
#include <chrono>

#include "src/library/base/try.h"
#include "src/library/sharing/share_server.h"

namespace commpool::internal {

namespace {

// That a process has ended, from its connection.
constexpr std::chrono::seconds kTimeToNotice(1);

void AddName(std::string& names, const Importer& importer) { names += (names.empty() ? "" : ", ") + importer.name(); }

Status Late(const std::string& names, uint64_t deadline_ms, const char* what) {
  return DeadlineExceeded(names, " ", what, " after ", deadline_ms, " ms: nothing has changed");
}

}  // namespace

void ShareServer::TellOfWrites(uint64_t pool, uint64_t block) {
  Importers untold;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    if (shared == nullptr) return;  // the runtime has ended
    const auto found = shared->blocks.find(block);
    if (found == shared->blocks.end() || found->second.writes == Writes::kEnded) return;
    for (const std::shared_ptr<Importer>& importer : shared->importers) {
      if (importer->awaits_updates || !importer->lines.contains(block)) continue;
      importer->awaits_updates = true;
      untold.push_back(importer);
    }
  }
  for (const std::shared_ptr<Importer>& importer : untold) SendTo(*importer, {ShareKind::kWritesGoOn, {}, {}});
}

Status ShareServer::BeginUpdate(uint64_t pool, uint64_t address) {
  uint64_t block = 0;
  Importers holders;
  uint64_t deadline_ms = 0;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    block = shared == nullptr ? 0 : shared->NumberOf(address);
    if (block == 0) return NotFound("the block was not shared by a ticket");
    SharedBlock& updated = shared->blocks.at(block);
    if (updated.writes == Writes::kEnded) {
      return FailedPrecondition("the block was shared with the promise that writes have ended");
    }
    if (updated.gate != Gate::kOpen) return FailedPrecondition("an update of the block is under way");
    shared->SetGate(updated, block, Gate::kUpdating);
    deadline_ms = shared->facts.deadline_ms;
    for (const std::shared_ptr<Importer>& importer : shared->importers) {
      if (importer->lines.contains(block)) holders.push_back(importer);
    }
  }
  const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(deadline_ms));
  std::string late;
  Status failure;
  for (const std::shared_ptr<Importer>& holder : holders) {
    const Result<bool> ended = AwaitReads(holder, block, deadline);
    if (!ended.ok()) failure = ended.status();
    if (ended.ok() && !*ended) AddName(late, *holder);
  }
  if (failure.ok() && late.empty()) return Status();
  OpenGate(pool, block, {});
  return failure.ok() ? Late(late, deadline_ms, "read the block still") : failure;
}

Result<bool> ShareServer::AwaitReads(const std::shared_ptr<Importer>& importer, uint64_t block, Deadline deadline) {
  Pauses pauses;
  std::optional<Deadline> noticed;
  while (true) {
    size_t place = 0;
    {
      MutexLock lock(mutex_);
      const auto held = importer->lines.find(block);
      if (importer->gone || held == importer->lines.end()) return true;
      place = held->second;
    }
    ReadingBoard::Line& line = importer->board.line(place);
    const uint32_t readers = line.readers;
    if (readers == 0) {
      const Result<bool> passed = importer->reads.Passed(driver_, line.read, importer->board.page().reads);
      // Where it has ended, the thread notices that in a moment.
      const bool may_have_ended = passed.status().code() == StatusCode::kRemoteFailure;
      if (may_have_ended && !noticed) noticed = std::min(deadline, DeadlineAfter(kTimeToNotice));
      if (!passed.ok() && !importer->gone && !(may_have_ended && !IsPast(*noticed))) return passed.status();
      if (passed.ok() && *passed) return true;
    }
    if (IsPast(deadline)) return false;
    if (readers != 0) {
      AwaitChange(line.readers, readers);
    } else {
      pauses.Pause();
    }
  }
}

void ShareServer::OpenGate(uint64_t pool, uint64_t block, std::optional<uint64_t> updated) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  if (shared == nullptr) return;  // it ended meanwhile, without importers
  const auto found = shared->blocks.find(block);
  if (found == shared->blocks.end()) return;
  if (updated) found->second.updated = *updated;
  for (const std::shared_ptr<Importer>& importer : shared->importers) {
    if (updated) shared->updates.Publish(importer->board.page().updates);
  }
  if (!found->second.freed) shared->SetGate(found->second, block, Gate::kOpen);
}

Status ShareServer::EndUpdate(uint64_t pool, uint64_t address, CUstream stream) {
  std::shared_ptr<SharedPool> shared;
  uint64_t block = 0;
  {
    MutexLock lock(mutex_);
    shared = Find(pool);
    block = shared == nullptr ? 0 : shared->NumberOf(address);
    if (block == 0) return NotFound("the block was not shared by a ticket");
    if (shared->blocks.at(block).gate == Gate::kOpen) return FailedPrecondition("no update of the block is under way");
  }
  MutexLock recording(shared->recording);
  const uint64_t number = COMMPOOL_TRY(shared->updates.Record(stream));
  OpenGate(pool, block, number);
  return Status();
}

Status ShareServer::CheckMaySleep(uint64_t pool) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  if (shared == nullptr || shared->imports == Imports::kSleepToo || shared->importers.empty()) return Status();
  std::string names;
  for (const std::shared_ptr<Importer>& importer : shared->importers) AddName(names, *importer);
  return FailedPrecondition(names,
                            " has imported it: close those imports first, or share it so that imports sleep too");
}

Status ShareServer::TellAsleep(uint64_t pool) {
  COMMPOOL_TRY(CheckMaySleep(pool));
  Importers importers;
  uint64_t deadline_ms = 0;
  uint32_t sleep = 0;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    if (shared == nullptr) return Status();
    shared->asleep = true;
    sleep = ++shared->sleeps;
    importers = shared->importers;
    deadline_ms = shared->facts.deadline_ms;
  }
  const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(deadline_ms));
  for (const std::shared_ptr<Importer>& importer : importers) {
    SendTo(*importer, {ShareKind::kSleep, {deadline_ms}, {}, sleep});
  }
  std::string late;
  Status refused;
  for (const std::shared_ptr<Importer>& importer : importers) {
    for (uint32_t seen = importer->answered; seen != sleep && !importer->gone && !IsPast(deadline);) {
      AwaitChange(importer->answered, seen);
      seen = importer->answered;
    }
    if (importer->gone) continue;
    MutexLock lock(mutex_);
    if (importer->answered != sleep) {
      AddName(late, *importer);
    } else if (refused.ok()) {
      refused = importer->slept.under(importer->name());
    }
  }
  if (late.empty() && refused.ok()) return Status();
  return refused.ok() ? Late(late, deadline_ms, "does not let the memory go") : refused;
}

void ShareServer::TellAwake(uint64_t pool) {
  Importers importers;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    if (shared == nullptr) return;
    shared->asleep = false;
    importers = shared->importers;
  }
  for (const std::shared_ptr<Importer>& importer : importers) SendTo(*importer, {ShareKind::kAwake, {}, {}});
}

}  // namespace commpool::internal
