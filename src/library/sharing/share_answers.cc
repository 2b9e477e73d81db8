// The owner's thread: it hears importers, answers them, and lets blocks go once nobody holds them.
#include <poll.h>
#include <sys/eventfd.h>

#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/sharing/share_server.h"

namespace commpool::internal {

namespace {

// How long the thread does not look at callers when the process has no descriptor for them.
constexpr int kRestMilliseconds = 10;

Status Ended() { return NotFound("the pool of the ticket has ended, or the ticket is forged"); }

}  // namespace

void ShareServer::Serve(int port) {
  const RelaxedCapture relaxed(driver_);
  bool resting = false;
  while (!ending_) {
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}, {resting ? -1 : port, POLLIN, 0}};
    {
      MutexLock lock(mutex_);
      for (const std::shared_ptr<Importer>& importer : connected_) {
        const int events = POLLIN | (importer->channel.has_queued() ? POLLOUT : 0);
        waits.push_back({importer->channel.descriptor(), static_cast<short>(events), 0});
      }
    }
    poll(waits.data(), waits.size(), resting ? kRestMilliseconds : -1);
    eventfd_t wakes = 0;
    static_cast<void>(eventfd_read(wake_.get(), &wakes));
    const Importers heard = connected_;
    for (size_t place = 0; place < heard.size(); ++place) {
      const bool ended = waits[place + 2].revents != 0 && !Hear(heard[place]);
      if (ended || heard[place]->gone) Drop(heard[place]);
    }
    ForgetEnded();
    resting = (waits[1].revents != 0 || resting) && !AcceptAll(port);
  }
  for (const std::shared_ptr<Importer>& importer : Importers(connected_)) Drop(importer);
}

bool ShareServer::AcceptAll(int port) {
  while (true) {
    PrivateDescriptor caller = PrivateDescriptor::Accept(port);
    if (!caller.valid()) return CodeOfError(errno) != StatusCode::kOutOfMemory;
    const auto importer = std::make_shared<Importer>();
    const Result<pid_t> peer = CheckPeer(caller.get());
    importer->channel = MessageChannel(std::move(caller));
    if (peer.ok()) {
      importer->process = *peer;
      connected_.push_back(importer);
    } else {
      static_cast<void>(importer->channel.Send(RefusalOf(peer.status())));
    }
  }
}

Status ShareServer::AnswerAll(const std::shared_ptr<Importer>& importer) {
  {
    MutexLock lock(mutex_);
    COMMPOOL_TRY(importer->channel.SendQueued());
  }
  while (true) {
    std::optional<Received> received = COMMPOOL_TRY(importer->channel.Receive());
    if (!received) return Status();
    const Status answered = Answer(importer, received->message);
    if (!answered.ok()) SendTo(*importer, RefusalOf(answered, received->message.question));
    if (importer->gone) return Status(StatusCode::kExhausted, "it reads no more");
  }
}

bool ShareServer::Hear(const std::shared_ptr<Importer>& importer) {
  const Status status = AnswerAll(importer);
  if (status.ok()) return true;
  if (status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotSupported) {
    SendTo(*importer, RefusalOf(status));
  }
  if (status.code() != StatusCode::kRemoteFailure) {
    Log(LogLevel::kInfo, "the import by " + importer->name() + " ends: " + status.message());
  }
  return false;
}

Status ShareServer::Answer(const std::shared_ptr<Importer>& importer, const ShareMessage& question) {
  if (question.kind == ShareKind::kHello) return Welcome(importer, question);
  if (question.kind == ShareKind::kTakeOffer) return GiveOffer(*importer, question);
  if (importer->pool == 0) return InvalidArgument("a malformed message: no ticket came first");
  switch (question.kind) {
    case ShareKind::kAskSegment:
      return GiveSegment(*importer, question);
    case ShareKind::kAskBlock:
      return GiveBlock(*importer, question);
    case ShareKind::kLetGo:
      TakeBack(*importer, question.numbers[0]);
      return Status();
    case ShareKind::kAsleep:
      NoteAsleep(*importer, question);
      return Status();
    default:
      return InvalidArgument("a malformed message: its kind is the owner's");
  }
}

// A late answer is one to a sleep that has ended. Importers of 0.11 name no sleep.
void ShareServer::NoteAsleep(Importer& importer, const ShareMessage& answer) {
  MutexLock lock(mutex_);
  const uint32_t sleep = Find(importer.pool)->sleeps;
  if (answer.question != 0 && answer.question != sleep) return;
  importer.slept = answer.numbers[0] == 0 ? Status() : StatusOf(answer);
  importer.answered = sleep;
  WakeWaiters(importer.answered);
}

Status ShareServer::Welcome(const std::shared_ptr<Importer>& importer, const ShareMessage& hello) {
  const HashKey secret = {hello.numbers[0], hello.numbers[1]};
  std::shared_ptr<SharedPool> pool;
  {
    MutexLock lock(mutex_);
    pool = Find(hello.numbers[2]);
    const bool may = pool != nullptr && !pool->ended && pool->secret == secret && importer->pool == 0;
    if (!may || pool->facts.memory.expired()) return Ended();
  }
  COMMPOOL_TRY(importer->reads.Take(hello.text));
  std::pair<ReadingBoard, FileDescriptor> board = COMMPOOL_TRY(ReadingBoard::Make());
  importer->board = std::move(board.first);
  MutexLock recording(pool->recording);
  pool->updates.Publish(importer->board.page().updates);
  {
    MutexLock lock(mutex_);
    if (pool->ended) return Ended();
    importer->pool = pool->facts.number;
    pool->importers.push_back(importer);
  }
  SendTo(*importer, {ShareKind::kWelcome, {}, pool->updates.handles() + pool->facts.title, hello.question},
         PrivateDescriptor::Make([&] { return std::move(board.second); }));
  return Status();
}

Status ShareServer::GiveSegment(Importer& importer, const ShareMessage& question) {
  std::shared_ptr<SharedPool> pool;
  {
    MutexLock lock(mutex_);
    pool = Find(importer.pool);
    if (pool->ended && pool->asleep) return pool->EndedAsleep();
  }
  const std::shared_ptr<SharedMemory> memory = pool->facts.memory.lock();
  if (memory == nullptr) return NotFound("the pool has ended");
  // The driver has no clear word for this; the descriptor is free again before it needs one.
  if (!FileDescriptor(eventfd(0, EFD_CLOEXEC)).valid()) {
    return OutOfMemory("the owner has no file descriptor left (ulimit -n)");
  }
  const auto known = question.numbers[1] == 0 ? std::nullopt : std::make_optional(question.numbers[2]);
  Result<SharedMemory::Exported> given = memory->Export(question.numbers[0], known);
  if (given.status().code() == StatusCode::kFailedPrecondition) {
    // The pool's own words are for its owner.
    return FailedPrecondition(pool->facts.title, " is asleep: ask again once its owner has woken it");
  }
  SharedMemory::Exported exported = COMMPOOL_TRY(std::move(given));
  SendTo(importer,
         {ShareKind::kSegment, {exported.address, exported.bytes, exported.number}, exported.fabric, question.question},
         std::move(exported.descriptor));
  return Status();
}

Status ShareServer::GiveBlock(Importer& importer, const ShareMessage& question) {
  const uint64_t number = question.numbers[0];
  ShareMessage answer{ShareKind::kBlock, {}, {}, question.question};
  {
    MutexLock lock(mutex_);
    SharedPool& pool = *Find(importer.pool);
    const auto found = pool.blocks.find(number);
    if (found == pool.blocks.end() || found->second.freed) return NotFound("the block of the ticket was freed");
    const size_t line = COMMPOOL_TRY(pool.Hold(importer, number));
    answer.numbers = {found->second.address, found->second.bytes, found->second.segment, line};
  }
  SendTo(importer, answer);
  TellOfWrites(importer.pool, number);
  return Status();
}

Status ShareServer::GiveOffer(Importer& asker, const ShareMessage& question) {
  OfferedDescriptors offered;
  {
    MutexLock lock(mutex_);
    const auto found = offers_.find({question.numbers[0], question.numbers[1]});
    if (found != offers_.end()) offered = found->second.lock();
  }
  if (offered == nullptr || question.numbers[2] >= offered->size()) {
    return NotFound("it offers nothing any more, or the secret is wrong");
  }
  PrivateDescriptor copy = COMMPOOL_TRY(CopyOf((*offered)[question.numbers[2]].get()));
  SendTo(asker, {ShareKind::kOffer, {}, {}, question.question}, std::move(copy));
  return Status();
}

void ShareServer::TakeBack(Importer& importer, uint64_t block) {
  std::shared_ptr<SharedPool> pool;
  uint64_t address = 0;
  {
    MutexLock lock(mutex_);
    pool = Find(importer.pool);
    if (pool == nullptr) return;
    const auto found = pool->blocks.find(block);
    if (found == pool->blocks.end()) return;
    address = found->second.address;
    pool->LetGo(importer, block);
    if (!pool->Forget(block)) return;
  }
  if (const std::shared_ptr<SharedMemory> memory = pool->facts.memory.lock()) memory->LetGo(address);
}

void ShareServer::Drop(const std::shared_ptr<Importer>& importer) {
  std::erase(connected_, importer);
  importer->gone = true;
  WakeWaiters(importer->answered);
  std::vector<uint64_t> blocks;
  {
    MutexLock lock(mutex_);
    importer->channel = MessageChannel();
    const std::shared_ptr<SharedPool> pool = Find(importer->pool);
    if (pool == nullptr) return;
    std::erase(pool->importers, importer);
    for (const auto& [block, line] : importer->lines) blocks.push_back(block);
  }
  for (const uint64_t block : blocks) TakeBack(*importer, block);
}

void ShareServer::SendTo(Importer& importer, const ShareMessage& message, PrivateDescriptor descriptor) {
  bool queued = false;
  {
    MutexLock lock(mutex_);
    const Status sent = importer.channel.Send(message, std::move(descriptor));
    const bool overfull = importer.channel.is_overfull();
    if (overfull || !sent.ok()) importer.gone = true;
    if (overfull && importer.board.valid()) importer.board.page().dropped = 1;
    queued = importer.channel.has_queued();
  }
  if (queued || importer.gone) Wake();
}

}  // namespace commpool::internal
