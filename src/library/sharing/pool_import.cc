#include "src/library/sharing/pool_import.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/sharing/share_folder.h"

namespace commpool::internal {

namespace {

constexpr std::chrono::seconds kTimeForTheBlock(1);

// This process's number of the device at a PCI address.
Result<int> DeviceAt(const Driver& driver, const std::string& pci_bus_id) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  for (int device = 0; device < count; ++device) {
    if (PciBusIdOf(driver, device) == pci_bus_id) return device;
  }
  return NotFound("the pool is on the device at ", pci_bus_id, ", which is none of the ", count,
                  " that this process sees: look at CUDA_VISIBLE_DEVICES, or name a device "
                  "that may access it");
}

}  // namespace

Result<std::unique_ptr<PoolImport>> PoolImport::Open(const Driver& driver, const Ticket& ticket,
                                                     const ImportOptions& options) {
  int device = options.device;
  if (device < 0) device = COMMPOOL_TRY(DeviceAt(driver, ticket.device));
  PrimaryContext context = COMMPOOL_TRY(PrimaryContext::Retain(driver, device));
  std::unique_ptr<PoolImport> import(new PoolImport(driver, ticket, options, std::move(context)));
  const Status connected = import->Connect();
  if (connected.ok()) return import;
  return connected.under("importing from " + import->owner_);
}

PoolImport::PoolImport(const Driver& driver, const Ticket& ticket, const ImportOptions& options, PrimaryContext context)
    : driver_(driver),
      options_(options),
      ticket_(ticket),
      owner_("process " + std::to_string(ticket.process)),
      context_(std::move(context)),
      segments_(driver, context_.device(), options.addresses) {}

Status PoolImport::Connect() {
  const Deadline deadline = this->deadline();
  const ContextGuard current(driver_, context_);
  MutexLock asking(asking_);
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return SystemFailure("eventfd failed");
  // First of all: the owner's thread wakes while this one makes its records.
  PrivateDescriptor socket = COMMPOOL_TRY(ConnectToOwner(ticket_.socket, deadline));
  COMMPOOL_TRY(CheckPeer(socket.get()));
  channel_ = MessageChannel(std::move(socket));
  ShareMessage hello{ShareKind::kHello, {ticket_.secret[0], ticket_.secret[1], ticket_.pool}};
  {
    MutexLock mapping(mapping_);
    reads_ = COMMPOOL_TRY(SharedRecords::Make(driver_));
    hello.text = reads_.handles();
  }
  const uint64_t greeted = COMMPOOL_TRY(Send(hello));
  // The ticket's block: asked for behind the greeting it costs no way there and back.
  uint64_t block = 0;
  uint64_t segment = 0;
  if (ticket_.block != 0) {
    block = COMMPOOL_TRY(Send({ShareKind::kAskBlock, {ticket_.block}}));
    segment = COMMPOOL_TRY(Send({ShareKind::kAskSegment, {ticket_.address}}));
  }
  // It starts while the owner answers. This thread reads the answers, for that one begins once it is welcome.
  thread_ = COMMPOOL_TRY(StartThread("the listener of an import", [this] { Serve(); }));
  const Received welcome = COMMPOOL_TRY(AwaitNow(greeted, deadline));
  COMMPOOL_TRY(updates_.Take(welcome.message.text.substr(0, OpenedRecords::kHandleBytes)));
  title_ = welcome.message.text.substr(OpenedRecords::kHandleBytes);
  board_ = COMMPOOL_TRY(ReadingBoard::Open(welcome.descriptor));
  // Else the thread opens them. Once the owner has ended the driver opens them no more.
  const RecordNumbers& updates = board_.page().updates;
  if (updates[0] != 0 || updates[1] != 0) COMMPOOL_TRY(updates_.Open(driver_));
  if (ticket_.block != 0) HoldFirst(block, segment, deadline);
  MutexLock lock(mutex_);
  welcome_ = true;
  changed_.NotifyAll();
  return Status();
}

void PoolImport::HoldFirst(uint64_t block_question, uint64_t segment_question, Deadline deadline) {
  // An owner that sleeps or wakes may take longer: then the block is asked for again, and that call tells of a failure.
  const Deadline soon = std::min(deadline, DeadlineAfter(kTimeForTheBlock));
  const Result<Received> block = AwaitNow(block_question, soon);
  const Result<Received> segment = AwaitNow(segment_question, soon);
  if (segment.ok()) {
    MutexLock mapping(mapping_);
    // Without it the block is asked for later, and that call tells why.
    static_cast<void>(Map(*segment));
  }
  if (block.ok()) static_cast<void>(Hold(ticket_.block, block->message, 0));
}

PoolImport::~PoolImport() { static_cast<void>(Close()); }

Status PoolImport::Close() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  {
    MutexLock lock(mutex_);
    channel_ = MessageChannel();
  }
  const ContextGuard current(driver_, context_);
  MutexLock mapping(mapping_);
  return segments_.UnmapAll();
}

Status PoolImport::OwnerEnded() const {
  return RemoteFailure("the owner, ", owner_,
                       dropped_ ? ", has ended this import, which stopped reading its messages" : ", has ended");
}

Status PoolImport::CheckNotClosing() const { return closing_ ? NotFound("the import was closed meanwhile") : Status(); }

Status PoolImport::NoAnswer() const {
  return DeadlineExceeded("the owner, ", owner_, ", has not answered within ", options_.deadline_ms, " ms");
}

bool PoolImport::Await(WaitSlices& slices, Awaited awaited) {
  do {
    MutexLock lock(mutex_);
    do {
      const bool is_there = awaited == Awaited::kAnswer ? answer_.has_value() : !asleep_;
      if (is_there || ended_ || closing_) return true;
    } while (changed_.WaitUntil(mutex_, slices.end()));
  } while (!slices.Over());
  return false;
}

Result<Received> PoolImport::Ask(ShareMessage question, ShareKind expected) {
  WaitSlices slices(deadline());
  Status sent;
  {
    MutexLock lock(mutex_);
    if (ended_) return OwnerEnded();
    question.question = asked_ = next_question_++;
    answer_.reset();
    sent = channel_.Send(question);
    Wake();  // the thread sends what is queued
  }
  if (sent.ok()) Await(slices, Awaited::kAnswer);
  MutexLock lock(mutex_);
  asked_ = 0;
  COMMPOOL_TRY(CheckNotClosing());
  if (!answer_ && (ended_ || !sent.ok())) return OwnerEnded();
  if (!answer_) return NoAnswer();
  Received answer = std::move(*answer_);
  answer_.reset();
  COMMPOOL_TRY(CheckAnswer(answer));
  if (answer.message.kind == expected) return answer;
  return RemoteFailure("the owner answered another question");
}

Status PoolImport::CheckAwake() {
  MutexLock lock(mutex_);
  return asleep_ ? FailedPrecondition(title_, " is asleep: ask again once its owner has woken it") : awake_failure_;
}

Status PoolImport::Map(const Received& answer) {
  const ContextGuard current(driver_, context_);
  const SegmentName name{answer.message.numbers[0], answer.message.numbers[1], answer.message.numbers[2]};
  CUmemFabricHandle fabric = {};
  const bool by_fabric = answer.message.text.size() == sizeof(fabric);
  if (by_fabric) std::memcpy(&fabric, answer.message.text.data(), sizeof(fabric));
  PhysicalMemory memory = COMMPOOL_TRY(by_fabric ? PhysicalMemory::Import(driver_, fabric, name.bytes)
                                                 : PhysicalMemory::Import(driver_, answer.descriptor, name.bytes));
  return segments_.Map(name, std::move(memory));
}

Result<uint64_t> PoolImport::MapSegmentOf(uint64_t theirs) {
  ShareMessage question{ShareKind::kAskSegment, {theirs}};
  {
    MutexLock mapping(mapping_);
    const std::optional<uint64_t> known = segments_.NumberOf(theirs);
    if (known && segments_.Find(*known, theirs)) question.numbers = {theirs, 1, *known};
  }
  for (;;) {
    const uint64_t sleeps = sleeps_;
    const Received answer = COMMPOOL_TRY(Ask(question, ShareKind::kSegment));
    const bool is_mapped = !answer.descriptor.valid() && answer.message.text.empty();
    if (!is_mapped) {
      MutexLock mapping(mapping_);
      COMMPOOL_TRY(CheckAwake());       // under the lock, which a sleep takes to unmap
      if (sleeps_ != sleeps) continue;  // the answer names memory that the owner has given back since
      COMMPOOL_TRY(Map(answer));
    }
    return uint64_t{answer.message.numbers[2]};
  }
}

std::optional<ImportedBlock> PoolImport::HoldAgain(uint64_t number) {
  // Then the owner holds none of them for this import any more. The thread may not have noticed yet.
  if (board_.page().dropped != 0) return std::nullopt;
  MutexLock lock(mutex_);
  const auto left = std::find_if(leaving_.begin(), leaving_.end(),
                                 [&](const auto& leaving) { return leaving.mapped().number == number; });
  if (left != leaving_.end()) {
    held_.insert(std::move(*left));
    leaving_.erase(left);
  }
  for (auto& [address, held] : held_) {
    if (held.number != number) continue;
    ++held.times;
    return ImportedBlock{address, held.bytes};
  }
  return std::nullopt;
}

Result<ImportedBlock> PoolImport::Block(const Ticket& ticket) {
  if (ticket.block == 0) return InvalidArgument("the ticket is a pool's: it names no block");
  if (ticket.secret != ticket_.secret) {
    return InvalidArgument("the ticket's block is of another pool than the import's, ", title_);
  }
  MutexLock asking(asking_);
  if (const std::optional<ImportedBlock> held = HoldAgain(ticket.block)) return *held;
  Result<Received> asked = Ask({ShareKind::kAskBlock, {ticket.block}}, ShareKind::kBlock);
  if (asked.status().code() == StatusCode::kDeadlineExceeded) {
    // Behind the question: the owner, which may yet answer it, holds nothing for nobody then.
    MutexLock lock(mutex_);
    static_cast<void>(channel_.Send({ShareKind::kLetGo, {ticket.block}}));
  }
  const Received answer = COMMPOOL_TRY(std::move(asked));
  const auto& [theirs, bytes, segment, line] = answer.message.numbers;
  const Status mapped = Find(segment, theirs) ? Status() : MapSegmentOf(theirs).status();
  Result<ImportedBlock> held = Hold(ticket.block, answer.message, 1);
  if (held.ok()) return held;
  COMMPOOL_TRY(mapped);
  COMMPOOL_TRY(CheckAwake());  // a sleep may have unmapped it since
  return held;
}

Result<ImportedBlock> PoolImport::Hold(uint64_t number, const ShareMessage& answer, uint64_t times) {
  const auto& [theirs, bytes, segment, line] = answer.numbers;
  const bool on_the_board = line < ReadingBoard::kLines;
  const CUdeviceptr address = on_the_board ? Find(segment, theirs, bytes).value_or(0) : 0;
  MutexLock lock(mutex_);
  if (address != 0) {
    held_.emplace(address, Held{number, bytes, line, times});
    return ImportedBlock{address, bytes};
  }
  static_cast<void>(channel_.Send({ShareKind::kLetGo, {number}}));
  if (!on_the_board) return RemoteFailure("the owner named no line of the board");
  return NotFound("the block's segment is gone, or does not hold it");
}

Result<CUdeviceptr> PoolImport::Address(uint64_t theirs) {
  MutexLock asking(asking_);
  Result<uint64_t> segment = MapSegmentOf(theirs);
  if (segment.status().code() == StatusCode::kRemoteFailure) {
    MutexLock mapping(mapping_);
    if (const std::optional<uint64_t> known = segments_.NumberOf(theirs)) segment = *known;
  }
  if (!segment.ok()) return segment.status();
  if (const std::optional<CUdeviceptr> address = Find(*segment, theirs)) return *address;
  return NotFound("the owner's segment is gone");
}

Result<PoolImport::HeldBlocks::iterator> PoolImport::FindHeld(CUdeviceptr address, Use use) {
  const auto next = held_.upper_bound(address);
  const auto found = next == held_.begin() ? held_.end() : std::prev(next);
  const bool held = found != held_.end() && found->second.times != 0 && address - found->first < found->second.bytes;
  if (!held) return NotFound("the pointer is in no block that this import holds: take the block first");
  const Held& block = found->second;
  if (use == Use::kEndRead && block.reading == 0) return FailedPrecondition("no read of the block has begun");
  if (use == Use::kRelease && block.times == 1 && block.reading != 0) {
    return FailedPrecondition("a read of the block has not ended");
  }
  return found;
}

std::optional<CUdeviceptr> PoolImport::Find(uint64_t segment, uint64_t theirs, uint64_t bytes) {
  MutexLock mapping(mapping_);
  return segments_.Find(segment, theirs, bytes);
}

}  // namespace commpool::internal
