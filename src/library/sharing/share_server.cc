#include "src/library/sharing/share_server.h"

#include <sys/eventfd.h>

#include "src/library/base/check.h"
#include "src/library/base/environment.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"

namespace commpool::internal {

ShareServer::ShareServer(const Driver& driver, std::string folder) : driver_(driver), folder_(std::move(folder)) {}

ShareServer::~ShareServer() { Stop(); }

Status ShareServer::Start() {
  MutexLock lock(mutex_);
  if (ending_) return FailedPrecondition("the runtime has ended");
  if (listener_.valid()) return Status();
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SystemFailure("eventfd failed");
  const Environment& environment = Environment::Get();
  ShareListener listener = COMMPOOL_TRY(
      ShareListener::OpenIn(folder_.empty() ? environment.sockets : folder_, environment.runtime_directory));
  wake_ = std::move(wake);
  const int port = listener.descriptor();
  thread_ = COMMPOOL_TRY(StartThread("the server of shared pools", [this, port] { Serve(port); }));
  listener_ = std::move(listener);
  return Status();
}

void ShareServer::Stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  Wake();
  thread.join();
  MutexLock lock(mutex_);
  pools_.clear();
  offers_.clear();
  listener_ = ShareListener();
}

void ShareServer::Wake() { static_cast<void>(eventfd_write(wake_.get(), 1)); }

Result<std::string> ShareServer::SharePool(const SharedPoolFacts& facts, Imports imports) {
  COMMPOOL_TRY(Start());
  {
    MutexLock lock(mutex_);
    if (const std::shared_ptr<SharedPool> known = Find(facts.number)) {
      known->imports = imports;
      return known->TicketOf(listener_.path(), 0).Text();
    }
  }
  const HashKey secret = COMMPOOL_TRY(RandomKey());
  SharedRecords updates = COMMPOOL_TRY(SharedRecords::Make(driver_));
  const auto made = std::make_shared<SharedPool>(facts, secret, std::move(updates));
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = pools_.emplace(facts.number, made).first->second;
  shared->imports = imports;
  std::string text = shared->TicketOf(listener_.path(), 0).Text();
  COMMPOOL_CHECK(text.size() <= kMostTicketBytes, "a ticket is longer than a program's room for it");
  return text;
}

bool ShareServer::IsShared(uint64_t pool) {
  MutexLock lock(mutex_);
  return Find(pool) != nullptr;
}

bool ShareServer::IsOwn(const Ticket& ticket) {
  MutexLock lock(mutex_);
  return listener_.valid() && ticket.socket == listener_.path();
}

Result<std::string> ShareServer::ShareBlock(uint64_t pool, const SharedBlock& block) {
  uint64_t number = 0;
  std::string text;
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<SharedPool> shared = Find(pool);
    if (shared == nullptr) return FailedPrecondition("the pool is not shared");
    number = shared->NumberOf(block.address);
    if (number != 0 && block.writes == Writes::kEnded && shared->blocks.at(number).gate != Gate::kOpen) {
      return FailedPrecondition("an update of the block is under way: its writes have not ended");
    }
    if (number == 0) shared->Add(number = next_block_++, block);
    shared->blocks.at(number).writes = block.writes;
    text = shared->TicketOf(listener_.path(), number).Text();
  }
  TellOfWrites(pool, number);  // an earlier ticket may have promised that writes have ended
  return text;
}

std::shared_ptr<SharedPool> ShareServer::Find(uint64_t pool) {
  const auto found = pools_.find(pool);
  return found == pools_.end() ? nullptr : found->second;
}

bool ShareServer::MayServe(uint64_t pool, uint64_t address) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  const uint64_t number = shared == nullptr ? 0 : shared->NumberOf(address);
  if (number == 0) return true;
  shared->NoteFree(number);
  const bool forgotten = shared->Forget(number);
  if (shared->MayBeForgotten()) Wake();  // the thread forgets it, for that calls the driver
  return forgotten;
}

std::vector<SharedBlock> ShareServer::Kept(uint64_t pool) {
  MutexLock lock(mutex_);
  const std::shared_ptr<SharedPool> shared = Find(pool);
  std::vector<SharedBlock> kept;
  if (shared == nullptr) return kept;
  for (const auto& [number, block] : shared->blocks) {
    if (!block.freed || shared->IsHeld(number)) kept.push_back(block);
  }
  return kept;
}

void ShareServer::EndPool(uint64_t pool) {
  std::shared_ptr<SharedPool> shared;
  Importers asleep;
  {
    MutexLock lock(mutex_);
    shared = Find(pool);
    if (shared == nullptr || shared->ended) return;
    shared->NoteEnd();
    if (shared->asleep) asleep = shared->importers;
  }
  for (const std::shared_ptr<Importer>& importer : asleep) SendTo(*importer, RefusalOf(shared->EndedAsleep()));
  shared.reset();
  ForgetEnded();
}

void ShareServer::ForgetEnded() {
  std::vector<std::shared_ptr<SharedPool>> forgotten;  // their events go after the lock
  MutexLock lock(mutex_);
  std::erase_if(pools_, [&](const auto& pool) {
    if (!pool.second->MayBeForgotten()) return false;
    forgotten.push_back(pool.second);
    return true;
  });
}

Result<RankOffer> ShareServer::Offer(std::vector<PrivateDescriptor> descriptors) {
  COMMPOOL_TRY(Start());
  const HashKey secret = COMMPOOL_TRY(RandomKey());
  const auto offered = std::make_shared<const std::vector<PrivateDescriptor>>(std::move(descriptors));
  MutexLock lock(mutex_);
  std::erase_if(offers_, [](const auto& offer) { return offer.second.expired(); });
  offers_.emplace(secret, offered);
  return RankOffer{{listener_.path(), secret}, offered};
}

}  // namespace commpool::internal
