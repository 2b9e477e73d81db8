// SleepingCommunicators: in each call the ranks agree that all of them can, act, and agree on how it went. NCCL waits
// for all ranks without a deadline, so no rank may enter its calls alone.
#include "src/library/pool/communicator_sleep.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/pool.h"
#include "src/library/registration/agreement.h"
#include "src/library/registration/small_all_gather.h"

namespace commpool::internal {

namespace {

// For a failure after which NCCL's state differs from rank to rank, or is unknown.
constexpr char kAbort[] = "; abort the communicator";

// What all ranks have said of a step, from this rank's part.
Status AgreeOn(AgreementChannel& channel, const Status& mine, const char* step) {
  return AgreeOnOutcomes({&channel}, {mine}, {step}).front();
}

Status WithAdvice(const Status& status) {
  return status.ok() ? status : Failure(status.code(), status.message(), kAbort);
}

// Words that no other rank sends. Every rank can compute those of every other rank, so nobody sends what to expect.
std::string WordsOf(int rank, size_t count) {
  std::string words;
  for (size_t word = 0; word < count; ++word) {
    const auto value = static_cast<uint32_t>((word + 1) * 2654435761u) ^ static_cast<uint32_t>(rank);
    words.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return words;
}

}  // namespace

// The entry is busy as long as the returned pointer lives: the pointer's deleter ends the call.
Result<SleepingCommunicators::SleeperPointer> SleepingCommunicators::Begin(ncclComm_t handle) {
  if (handle == nullptr) return InvalidArgument("the communicator is null");
  SleeperPointer kept;
  {
    MutexLock lock(mutex_);
    SleeperPointer& sleeper = sleepers_[handle];
    if (sleeper != nullptr && sleeper->busy) {
      return FailedPrecondition("another thread's call is putting the communicator to sleep, or waking it");
    }
    if (sleeper == nullptr) sleeper = std::make_shared<Sleeper>();
    sleeper->busy = true;
    kept = sleeper;
  }
  return SleeperPointer(kept.get(), [this, handle, kept](Sleeper*) { End(handle, *kept); });
}

// Called as the last pointer to the turn goes, so after every way out of a call.
void SleepingCommunicators::End(ncclComm_t handle, Sleeper& sleeper) {
  MutexLock lock(mutex_);
  sleeper.busy = false;
  if (!sleeper.asleep) sleepers_.erase(handle);  // its channel says goodbye after the lock: the caller keeps it
}

// The first sleep of a communicator connects its ranks; later sleeps do it again, because a waking ends the channel.
Status SleepingCommunicators::Open(Sleeper& sleeper, ncclComm_t handle, uint64_t deadline_ms) {
  sleeper.communicator = COMMPOOL_TRY(DescribeCommunicator(runtime_.driver, handle, deadline_ms));
  sleeper.deadline_ms = deadline_ms;
  sleeper.device = COMMPOOL_TRY(runtime_.devices.Get(sleeper.communicator.device));
  const ContextGuard current(runtime_.driver, sleeper.device->context());
  Result<std::unique_ptr<AgreementChannel>> channel =
      runtime_.links.Open(runtime_.driver, sleeper.communicator, deadline_ms, runtime_.unanswered,
                          {.call = "put the communicator to sleep",
                           .likely_cause = "not every rank calls it, or one has another collective at this place"});
  // With a rank missing NCCL's kernel waits on for it.
  if (channel.status().code() == StatusCode::kDeadlineExceeded) return WithAdvice(channel.status());
  sleeper.channel = COMMPOOL_TRY(std::move(channel));
  sleeper.communicator.lost = sleeper.channel->lost_ranks();
  return Status();
}

Status SleepingCommunicators::Sleep(ncclComm_t handle, uint64_t deadline_ms) {
  const SleeperPointer turn = COMMPOOL_TRY(Begin(handle));
  const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime_.driver, handle));
  Sleeper& sleeper = *turn;
  // Another communicator came to the address of one that was aborted in its sleep.
  if (sleeper.asleep && !memory.asleep) {
    sleeper.asleep = false;
    sleeper.channel = nullptr;
  }
  if (sleeper.channel == nullptr) COMMPOOL_TRY(Open(sleeper, handle, deadline_ms));
  const ContextGuard current(runtime_.driver, sleeper.device->context());
  COMMPOOL_TRY(Agree(sleeper, CollectiveCall::kSleepCommunicator, CheckMaySleep(sleeper)));
  return FallAsleep(sleeper);
}

// Without a channel nobody can be told, so a communicator that does not sleep is this rank's error alone.
Status SleepingCommunicators::Wake(ncclComm_t handle) {
  const SleeperPointer turn = COMMPOOL_TRY(Begin(handle));
  const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime_.driver, handle));
  Sleeper& sleeper = *turn;
  if (sleeper.asleep && !memory.asleep) sleeper.asleep = false;
  if (!sleeper.asleep) {
    return FailedPrecondition(memory.asleep ? "the communicator is not ours to wake: call ncclCommResume "
                                              "where the program suspended it, abort it where a wake failed"
                                            : "the communicator is not asleep");
  }
  const ContextGuard current(runtime_.driver, sleeper.device->context());
  COMMPOOL_TRY(Agree(sleeper, CollectiveCall::kWakeCommunicator, CheckMayWake(sleeper, memory)));
  return WakeUp(sleeper);
}

// A round that changes nothing: every rank hears whether all ranks can. With a rank missing nobody can sleep or wake;
// one that sleeps stays in the table, so that a second wake says the same.
Status SleepingCommunicators::Agree(const Sleeper& sleeper, CollectiveCall call, const Status& readiness) const {
  Intent intent{.call = call, .nccl_version = runtime_.driver.nccl.version};
  intent.readiness = readiness;
  const Status status = TellRefusal({sleeper.channel.get()}, intent);
  return BreaksChannel(status) ? WithAdvice(status) : status;
}

// The answer goes to the other ranks.
Status SleepingCommunicators::CheckMaySleep(const Sleeper& sleeper) const {
  if (sleeper.asleep) return FailedPrecondition("the communicator is asleep already");
  COMMPOOL_TRY(sleeper.device->health().first_error());
  COMMPOOL_TRY(sleeper.device->CheckNotCapturing());
  return CheckNoPoolUses(sleeper.communicator);
}

// NCCL's memory for windows goes with the rest of it, so they end before: only the program knows what its graphs hold.
Status SleepingCommunicators::CheckNoPoolUses(const Communicator& communicator) const {
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (!pool->segments().registrations.IsRegisteredWith(communicator.handle)) continue;
    const char* const advice = !pool->basis().life.destroyed()
                                   ? ": sleep() that pool before, or deregister it"
                                   : " and was destroyed without close(): abort the communicator";
    return FailedPrecondition(pool->basis().title, " is registered with the communicator", advice);
  }
  return Status();
}

// NCCL makes its memory before it waits for the others: a rank without room would make them wait for ever.
Status SleepingCommunicators::CheckMayWake(const Sleeper& sleeper, const CommunicatorMemory& memory) const {
  COMMPOOL_TRY(sleeper.device->health().first_error());
  COMMPOOL_TRY(sleeper.device->CheckNotCapturing());
  size_t free = 0;
  size_t total = 0;
  COMMPOOL_TRY(CheckCuda(runtime_.driver, runtime_.driver.cuda.cuMemGetInfo(&free, &total),
                         {.call = "cuMemGetInfo", .device = sleeper.device->device()}));
  if (free >= memory.sleeping_bytes) return Status();
  return OutOfMemory("the communicator needs ", FormatBytes(memory.sleeping_bytes), ", and device ",
                     sleeper.device->device(), " has ", FormatBytes(free), " free",
                     runtime_.others.DescribeHolders(sleeper.device->device()));
}

// Running work may use NCCL's memory, so all ranks wait for their devices before any rank gives it back.
Status SleepingCommunicators::FallAsleep(Sleeper& sleeper) {
  const Status quiet = sleeper.device->Quiesce(sleeper.deadline_ms);
  COMMPOOL_TRY(AgreeOn(*sleeper.channel, quiet, "waiting for the device"));
  const Status mine = GiveMemoryBack(runtime_.driver, sleeper.communicator, PartOf(sleeper.deadline_ms));
  const Status all = AgreeOn(*sleeper.channel, mine, "giving NCCL's memory back");
  // Ranks wake together, so a communicator sleeps only where all have given their memory back.
  sleeper.asleep = all.ok();
  if (all.ok()) return all;
  if (BreaksChannel(all)) return WithAdvice(all);
  // Where NCCL refused on every rank nothing has happened.
  const Result<CommunicatorMemory> memory = MemoryOf(runtime_.driver, sleeper.communicator.handle);
  const bool untouched = !mine.ok() && mine.code() == StatusCode::kCommunicatorError && memory.ok() && !memory->asleep;
  const Status all_untouched =
      AgreeOn(*sleeper.channel, untouched ? Status() : Status(StatusCode::kCommunicatorError, "its memory is gone"),
              "looking at NCCL's memory");
  return all_untouched.ok() ? all : WithAdvice(all);
}

// Whatever happens, the communicator counts as awake from here on: after a failure it can only be aborted.
Status SleepingCommunicators::WakeUp(Sleeper& sleeper) {
  sleeper.asleep = false;
  const Status made = MakeMemoryAgain(runtime_.driver, sleeper.communicator, PartOf(sleeper.deadline_ms));
  COMMPOOL_TRY(WithAdvice(AgreeOn(*sleeper.channel, made, "making NCCL's memory again")));
  const Status checked = CheckCollective(sleeper);
  return WithAdvice(AgreeOn(*sleeper.channel, checked, "checking NCCL's memory with a collective"));
}

// Through NCCL's buffers on every rank of the ring. NCCL's own answer says only that its calls went well.
Status SleepingCommunicators::CheckCollective(const Sleeper& sleeper) const {
  constexpr size_t kMostWords = 64 << 10;  // of a rank
  constexpr size_t kMostWordsOfAll = 1 << 20;
  const Communicator& communicator = sleeper.communicator;
  const size_t count = std::clamp<size_t>(kMostWordsOfAll / static_cast<size_t>(communicator.ranks), 1, kMostWords);
  const std::vector<std::string> all =
      COMMPOOL_TRY(GatherOver(runtime_.driver, communicator, WordsOf(communicator.rank, count),
                              {.call = "wake", .likely_cause = "the memory of some rank did not come back"},
                              PartOf(sleeper.deadline_ms), runtime_.unanswered));
  for (int rank = 0; rank < communicator.ranks; ++rank) {
    if (all[static_cast<size_t>(rank)] == WordsOf(rank, count)) continue;
    return Failure(StatusCode::kCommunicatorError, "the bytes of rank ", rank,
                   " arrived changed: its memory did not come back");
  }
  return Status();
}

}  // namespace commpool::internal
