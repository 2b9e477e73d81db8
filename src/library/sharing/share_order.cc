// How the owner of a shared pool waits for its importers: before an update of a block, and before the pool sleeps.
#include <algorithm>
#include <chrono>
#include <optional>

#include "src/library/base/try.h"
#include "src/library/sharing/share_server.h"

namespace commpool::internal {

namespace {

// That a process has ended, from its connection.
constexpr std::chrono::seconds kTimeToNotice(1);

void AddName(std::string& names, const Importer& importer) { names += (names.empty() ? "" : ", ") + importer.name(); }

Status Late(const std::string& names, uint64_t deadline_ms, const char* what) {
  return Status(StatusCode::kDeadlineExceeded,
                names + " " + what + " after " + std::to_string(deadline_ms) + " ms: nothing has changed");
}

}  // namespace

ShareServer::Importers ShareServer::ImportersOf(uint64_t pool) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  return shared == nullptr ? Importers() : shared->importers;
}

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
    if (block == 0) return Status(StatusCode::kNotFound, "the block was not shared by a ticket");
    SharedBlock& updated = shared->blocks.at(block);
    if (updated.writes == Writes::kEnded) {
      return Status(StatusCode::kFailedPrecondition, "the block was shared with the promise that writes have ended");
    }
    if (updated.updating) return Status(StatusCode::kFailedPrecondition, "an update of the block is under way");
    updated.updating = true;
    deadline_ms = shared->facts().deadline_ms;
    for (const std::shared_ptr<Importer>& importer : shared->importers) {
      const auto held = importer->lines.find(block);
      if (held == importer->lines.end()) continue;
      importer->board.line(held->second).updating = 1;
      holders.push_back(importer);
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
  found->second.updating = false;
  if (updated) found->second.updated = *updated;
  for (const std::shared_ptr<Importer>& importer : shared->importers) {
    if (updated) shared->updates().Publish(importer->board.page().updates);
    const auto held = importer->lines.find(block);
    if (held == importer->lines.end()) continue;
    ReadingBoard::Line& line = importer->board.line(held->second);
    line.updated = found->second.updated;
    line.updating = 0;
    WakeWaiters(line.updating);
  }
}

Status ShareServer::EndUpdate(uint64_t pool, uint64_t address, CUstream stream) {
  std::shared_ptr<SharedPool> shared;
  uint64_t block = 0;
  {
    MutexLock lock(mutex_);
    shared = Find(pool);
    block = shared == nullptr ? 0 : shared->NumberOf(address);
    if (block == 0) return Status(StatusCode::kNotFound, "the block was not shared by a ticket");
    if (!shared->blocks.at(block).updating) {
      return Status(StatusCode::kFailedPrecondition, "no update of the block is under way");
    }
  }
  MutexLock recording(shared->recording());
  const uint64_t number = COMMPOOL_TRY(shared->updates().Record(driver_, stream));
  OpenGate(pool, block, number);
  return Status();
}

Status ShareServer::CheckMaySleep(uint64_t pool) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  if (shared == nullptr || shared->imports == Imports::kSleepToo || shared->importers.empty()) return Status();
  std::string names;
  for (const std::shared_ptr<Importer>& importer : shared->importers) AddName(names, *importer);
  return Status(StatusCode::kFailedPrecondition,
                names + " has imported it: close those imports first, or share it so that imports sleep too");
}

Status ShareServer::TellAsleep(uint64_t pool) {
  COMMPOOL_TRY(CheckMaySleep(pool));
  Importers importers;
  uint64_t deadline_ms = 0;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    if (shared == nullptr || shared->importers.empty()) return Status();
    importers = shared->importers;
    deadline_ms = shared->facts().deadline_ms;
  }
  const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(deadline_ms));
  std::vector<uint32_t> answered;
  for (const std::shared_ptr<Importer>& importer : importers) {
    answered.push_back(importer->answered);
    SendTo(*importer, {ShareKind::kSleep, {deadline_ms}, {}});
  }
  std::string late;
  Status refused;
  for (size_t place = 0; place < importers.size(); ++place) {
    Importer& importer = *importers[place];
    while (importer.answered == answered[place] && !importer.gone && !IsPast(deadline)) {
      AwaitChange(importer.answered, answered[place]);
    }
    if (importer.gone) continue;
    MutexLock lock(mutex_);
    if (importer.answered == answered[place]) AddName(late, importer);
    if (refused.ok()) refused = importer.slept.under(importer.name());
    importer.slept = Status();
  }
  if (late.empty() && refused.ok()) return Status();
  return refused.ok() ? Late(late, deadline_ms, "does not let the memory go") : refused;
}

void ShareServer::TellAwake(uint64_t pool) {
  for (const std::shared_ptr<Importer>& importer : ImportersOf(pool)) SendTo(*importer, {ShareKind::kAwake, {}, {}});
}

}  // namespace commpool::internal
