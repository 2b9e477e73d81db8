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

// NCCL's memory for windows goes with the rest of it, so they end before: only the program knows what its graphs hold.
Status CheckNoPoolUses(const PoolTable& pools, const Communicator& communicator) {
  for (const std::shared_ptr<Pool>& pool : pools.All()) {
    if (!pool->segments().registrations.IsRegisteredWith(communicator.handle)) continue;
    const char* const advice = !pool->basis().life.destroyed()
                                   ? ": sleep() that pool before, or deregister it"
                                   : " and was destroyed without close(): abort the communicator";
    return FailedPrecondition(pool->basis().title, " is registered with the communicator", advice);
  }
  return Status();
}

}  // namespace

// It makes its steps of a call itself. Only the thread whose call is under way changes it (`busy`).
struct SleepingCommunicators::Sleeper {
  RuntimeParts& runtime;
  Communicator communicator = {};
  std::shared_ptr<DeviceState> device = {};
  // Made for the sleep, and kept for the waking: in between the communicator itself cannot carry a message.
  std::unique_ptr<AgreementChannel> channel = {};
  uint64_t deadline_ms = 0;
  bool busy = false;  // a call is under way
  bool asleep = false;

  // Of a step inside a round: the round's own deadline must still hold for what the other ranks tell.
  uint64_t deadline_of_part() const { return deadline_ms / 2; }

  // Connects to the communicator's ranks. Collective over it. The first sleep of a communicator calls it; later sleeps
  // do it again, because a waking ends the channel.
  Status Open(ncclComm_t handle, uint64_t milliseconds) {
    communicator = COMMPOOL_TRY(DescribeCommunicator(runtime.driver, handle, milliseconds));
    deadline_ms = milliseconds;
    device = COMMPOOL_TRY(runtime.devices.Get(communicator.device));
    const ContextGuard current(runtime.driver, device->context());
    Result<std::unique_ptr<AgreementChannel>> opened =
        runtime.links.Open(runtime.driver, communicator, deadline_ms, runtime.unanswered,
                           {.call = "put the communicator to sleep",
                            .likely_cause = "not every rank calls it, or one has another collective at this place"});
    // With a rank missing NCCL's kernel waits on for it.
    if (opened.status().code() == StatusCode::kDeadlineExceeded) return WithAdvice(opened.status());
    channel = COMMPOOL_TRY(std::move(opened));
    communicator.lost = channel->lost_ranks();
    return Status();
  }

  // What all ranks have said of a step, from this rank's part.
  Status AgreeOnStep(const Status& mine, const char* step) const {
    return AgreeOnOutcomes({channel.get()}, {mine}, {step}).front();
  }

  // A round that changes nothing: every rank hears whether all ranks can, and all return the same. With a rank missing
  // nobody can sleep or wake; one that sleeps stays in the table, so that a second wake says the same.
  Status Agree(CollectiveCall call, const Status& readiness) const {
    Intent intent{.call = call, .nccl_version = runtime.driver.nccl.version};
    intent.readiness = readiness;
    const Status status = TellRefusal({channel.get()}, intent);
    return BreaksChannel(status) ? WithAdvice(status) : status;
  }

  // Of this rank, before anything has changed. The answer goes to the other ranks.
  Status CheckMaySleep(const PoolTable& pools) const {
    if (asleep) return FailedPrecondition("the communicator is asleep already");
    COMMPOOL_TRY(device->health().first_error());
    COMMPOOL_TRY(device->CheckNotCapturing());
    return CheckNoPoolUses(pools, communicator);
  }

  // NCCL makes its memory before it waits for the others: a rank without room would make them wait for ever.
  Status CheckMayWake(const CommunicatorMemory& memory) const {
    COMMPOOL_TRY(device->health().first_error());
    COMMPOOL_TRY(device->CheckNotCapturing());
    size_t free = 0;
    size_t total = 0;
    COMMPOOL_TRY(CheckCuda(runtime.driver, runtime.driver.cuda.cuMemGetInfo(&free, &total),
                           {.call = "cuMemGetInfo", .device = device->device()}));
    if (free >= memory.sleeping_bytes) return Status();
    return OutOfMemory("the communicator needs ", FormatBytes(memory.sleeping_bytes), ", and device ", device->device(),
                       " has ", FormatBytes(free), " free", runtime.others.DescribeHolders(device->device()));
  }

  // It calls NCCL after all ranks have agreed that they can, as WakeUp does. Running work may use NCCL's memory, so all
  // ranks wait for their devices before any rank gives it back.
  Status FallAsleep() {
    COMMPOOL_TRY(AgreeOnStep(device->Quiesce(deadline_of_part()), "waiting for the device"));
    const Status mine = GiveMemoryBack(runtime.driver, communicator, deadline_of_part());
    const Status all = AgreeOnStep(mine, "giving NCCL's memory back");
    // Ranks wake together, so a communicator sleeps only where all have given their memory back.
    asleep = all.ok();
    if (all.ok()) return all;
    if (BreaksChannel(all)) return WithAdvice(all);
    // Where NCCL refused on every rank nothing has happened.
    const Result<CommunicatorMemory> memory = MemoryOf(runtime.driver, communicator.handle);
    const bool untouched =
        !mine.ok() && mine.code() == StatusCode::kCommunicatorError && memory.ok() && !memory->asleep;
    const Status all_untouched =
        AgreeOnStep(untouched ? Status() : Status(StatusCode::kCommunicatorError, "its memory is gone"),
                    "looking at NCCL's memory");
    return all_untouched.ok() ? all : WithAdvice(all);
  }

  // Whatever happens, the communicator counts as awake from here on: after a failure it can only be aborted.
  Status WakeUp() {
    asleep = false;
    const Status made = MakeMemoryAgain(runtime.driver, communicator, deadline_of_part());
    COMMPOOL_TRY(WithAdvice(AgreeOnStep(made, "making NCCL's memory again")));
    return WithAdvice(AgreeOnStep(CheckCollective(), "checking NCCL's memory with a collective"));
  }

  // Sends bytes that every rank knows through NCCL's buffers, on every rank of the ring, and compares what arrives.
  // NCCL's own answer says only that its calls went well.
  Status CheckCollective() const {
    constexpr size_t kMostWords = 64 << 10;  // of a rank
    constexpr size_t kMostWordsOfAll = 1 << 20;
    const size_t count = std::clamp<size_t>(kMostWordsOfAll / static_cast<size_t>(communicator.ranks), 1, kMostWords);
    const std::vector<std::string> all =
        COMMPOOL_TRY(GatherOver(runtime.driver, communicator, WordsOf(communicator.rank, count),
                                {.call = "wake", .likely_cause = "the memory of some rank did not come back"},
                                deadline_of_part(), runtime.unanswered));
    for (int rank = 0; rank < communicator.ranks; ++rank) {
      if (all[static_cast<size_t>(rank)] == WordsOf(rank, count)) continue;
      return Failure(StatusCode::kCommunicatorError, "the bytes of rank ", rank,
                     " arrived changed: its memory did not come back");
    }
    return Status();
  }
};

// The entry is busy as long as the returned pointer lives: the pointer's deleter ends the call, after every way out of
// it.
Result<SleepingCommunicators::SleeperPointer> SleepingCommunicators::Begin(ncclComm_t handle) {
  if (handle == nullptr) return InvalidArgument("the communicator is null");
  SleeperPointer kept;
  {
    MutexLock lock(mutex_);
    SleeperPointer& sleeper = sleepers_[handle];
    if (sleeper != nullptr && sleeper->busy) {
      return FailedPrecondition("another thread's call is putting the communicator to sleep, or waking it");
    }
    if (sleeper == nullptr) sleeper = std::make_shared<Sleeper>(Sleeper{runtime_});
    sleeper->busy = true;
    kept = sleeper;
  }
  return SleeperPointer(kept.get(), [this, handle, kept](Sleeper*) {
    MutexLock lock(mutex_);
    kept->busy = false;
    if (!kept->asleep) sleepers_.erase(handle);  // its channel says goodbye after the lock: the caller keeps it
  });
}

Status SleepingCommunicators::Sleep(ncclComm_t handle, uint64_t deadline_ms) {
  const SleeperPointer sleeper = COMMPOOL_TRY(Begin(handle));
  const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime_.driver, handle));
  // Another communicator came to the address of one that was aborted in its sleep.
  if (sleeper->asleep && !memory.asleep) {
    sleeper->asleep = false;
    sleeper->channel = nullptr;
  }
  if (sleeper->channel == nullptr) COMMPOOL_TRY(sleeper->Open(handle, deadline_ms));
  const ContextGuard current(runtime_.driver, sleeper->device->context());
  COMMPOOL_TRY(sleeper->Agree(CollectiveCall::kSleepCommunicator, sleeper->CheckMaySleep(pools_)));
  return sleeper->FallAsleep();
}

// Without a channel nobody can be told, so a communicator that does not sleep is this rank's error alone.
Status SleepingCommunicators::Wake(ncclComm_t handle) {
  const SleeperPointer sleeper = COMMPOOL_TRY(Begin(handle));
  const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime_.driver, handle));
  if (sleeper->asleep && !memory.asleep) sleeper->asleep = false;
  if (!sleeper->asleep) {
    return FailedPrecondition(memory.asleep ? "the communicator is not ours to wake: call ncclCommResume "
                                              "where the program suspended it, abort it where a wake failed"
                                            : "the communicator is not asleep");
  }
  const ContextGuard current(runtime_.driver, sleeper->device->context());
  COMMPOOL_TRY(sleeper->Agree(CollectiveCall::kWakeCommunicator, sleeper->CheckMayWake(memory)));
  return sleeper->WakeUp();
}

}  // namespace commpool::internal
