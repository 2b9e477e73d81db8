// KeptMemory and HostCopies: what copies lie in on the host, and four copiers that take turns. KeptBlocks: which blocks
// have a copy, where it lies, and when it goes.
#include "src/library/pool/blocks/kept_blocks.h"

#include <algorithm>
#include <variant>

#include "src/library/base/bytes.h"
#include "src/library/base/kept_file.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// The largest part of a copy between memories.
constexpr uint64_t kPartBytes = 64 * kMiB;
// The largest part of a copy to or from a file: each copier has so much pinned memory.
constexpr uint64_t kFilePartBytes = 16 * kMiB;

// The whole pages of a file that hold a part: files are read and written in whole pages.
struct Pages {
  uint64_t offset;
  uint64_t lead;  // where the part begins in the first page
  uint64_t bytes;
};

Pages PagesOf(const HostCopies::Run& part) {
  const uint64_t offset = RoundDown(part.offset, KeptFile::kAlignment);
  return {offset, part.offset - offset, RoundUp(part.offset + part.bytes, KeptFile::kAlignment) - offset};
}

// Whether one of the addresses, which are sorted, lies in a block.
bool Names(const std::vector<uint64_t>& addresses, const engine::SegmentRange& block) {
  const auto found = std::lower_bound(addresses.begin(), addresses.end(), block.address);
  return found != addresses.end() && *found < block.address + block.bytes;
}

}  // namespace

// Host memory, or a file, that holds copies of blocks. KeptBlocks owns it, and the pool's growth lock guards it. It
// owns the memory or the file, and its room in the account.
class KeptMemory {
 public:
  // Makes memory or a file of so many bytes, which count in the account as long as the object lives. Takes room first,
  // as all memory does. REQUIRES: the device's context is current.
  static Result<KeptMemory> Make(const Driver& driver, const KeptCopies& copies, uint64_t bytes,
                                 MemoryAccount& account) {
    if (copies.in == KeptIn::kFiles) bytes = RoundUp(bytes, KeptFile::kAlignment);
    if (!account.Take(bytes)) return OutOfMemory("the blocks to keep exceed any host's memory");
    Room room(account, bytes);
    if (copies.in == KeptIn::kFiles) {
      KeptFile file = COMMPOOL_TRY(KeptFile::Make(copies.directory, bytes));
      return KeptMemory(std::move(file), std::move(room));
    }
    if (copies.in == KeptIn::kPinned) {
      PinnedMemory pinned = COMMPOOL_TRY(PinnedMemory::Make(driver, bytes));
      return KeptMemory(std::move(pinned), std::move(room));
    }
    HostPages pages = HostPages::Make(bytes);
    if (!pages.valid()) return OutOfMemory("the host has no ", FormatBytes(bytes), " to keep blocks in");
    return KeptMemory(std::move(pages), std::move(room));
  }

  // The address for the driver's copies; 0 for a file, whose contents go through pinned memory. Pageable memory has an
  // address for the driver too: it copies such memory by itself, only slower.
  CUdeviceptr address() const {
    if (const auto* const pinned = std::get_if<PinnedMemory>(&place_)) return pinned->address();
    const auto* const pages = std::get_if<HostPages>(&place_);
    return pages == nullptr ? 0 : reinterpret_cast<CUdeviceptr>(pages->data());
  }
  KeptFile* file() { return std::get_if<KeptFile>(&place_); }
  // Call it when all copies are in it. A file that somebody changes after that is refused (KeptFile::Seal).
  Status Seal() { return file() == nullptr ? Status() : file()->Seal(); }
  // The first byte, for the program to read. Valid as long as the object lives. A file is mapped at its first read, and
  // checked against its seal.
  Result<const std::byte*> Read() {
    return file() == nullptr ? reinterpret_cast<const std::byte*>(address()) : file()->Map();
  }
  // Call it when the runtime ends: then no driver call releases it. Only pinned memory is the driver's; pages and files
  // are the system's.
  void Abandon() {
    if (auto* const pinned = std::get_if<PinnedMemory>(&place_)) pinned->Abandon();
  }

 private:
  using Place = std::variant<PinnedMemory, HostPages, KeptFile>;

  KeptMemory(Place place, Room room) : place_(std::move(place)), room_(std::move(room)) {}

  Place place_;
  Room room_;
};

// Copies are cut into parts so that several copiers share one run.
Status HostCopies::Start(Run run, Direction direction) {
  const bool file = run.memory->file() != nullptr;
  while (run.bytes != 0) {
    // A part of a file ends where one of its pages ends, so that no two parts write one page.
    const uint64_t most = file ? kFilePartBytes - run.offset % KeptFile::kAlignment : kPartBytes;
    Run part = run;
    part.bytes = std::min(run.bytes, most);
    COMMPOOL_TRY(StartPart(part, direction));
    run.device += part.bytes;
    run.offset += part.bytes;
    run.bytes -= part.bytes;
  }
  return Status();
}

// A file's bytes pass through pinned memory: the driver copies between memories only. Towards the device they are read
// here; towards the host Finish writes them.
Status HostCopies::StartPart(const Run& part, Direction direction) {
  Copier& copier = copiers_[turn_++ % kCopiers];
  // Its earlier copy first: the staging memory is used again.
  COMMPOOL_TRY(Finish(copier));
  // Made at the first use: a pool that keeps nothing needs no streams.
  if (!copier.stream.valid()) copier.stream = COMMPOOL_TRY(CopyStream::Make(basis_.driver));
  KeptFile* const file = part.memory->file();
  CUdeviceptr host = part.memory->address() + part.offset;
  if (file != nullptr) {
    if (!copier.staging.valid()) copier.staging = COMMPOOL_TRY(PinnedMemory::Make(basis_.driver, kFilePartBytes));
    const Pages pages = PagesOf(part);
    host = copier.staging.address() + pages.lead;
    if (direction == Direction::kToDevice) {
      COMMPOOL_TRY(file->Read(pages.offset, reinterpret_cast<void*>(copier.staging.address()), pages.bytes));
    }
  }
  const bool to_host = direction == Direction::kToHost;
  COMMPOOL_TRY(copier.stream.Copy(to_host ? host : part.device, to_host ? part.device : host, part.bytes));
  copier.running = part;
  copier.direction = direction;
  return Status();
}

// Does nothing for a copier without a copy.
Status HostCopies::Finish(Copier& copier) {
  if (!copier.running) return Status();
  const Run part = *std::exchange(copier.running, std::nullopt);
  COMMPOOL_TRY(copier.stream.Await());
  if (progress_) progress_->Advance(part.bytes);
  KeptFile* const file = part.memory->file();
  if (file == nullptr || copier.direction == Direction::kToDevice) return Status();
  const Pages pages = PagesOf(part);
  return file->Write(pages.offset, reinterpret_cast<void*>(copier.staging.address()), pages.bytes);
}

// Ends all copies in the order in which they began, after a failure as well: their memory may go once this returns.
Status HostCopies::Await(Status started) {
  const ContextGuard current = basis_.MakeCurrent();
  Status status = std::move(started);
  for (size_t copier = 0; copier < kCopiers; ++copier) {  // turn_ is the copier whose copy began first
    KeepFirst(status, Finish(copiers_[turn_++ % kCopiers]));
  }
  // After a failure a copy may still run, and the caller releases its memory now.
  if (!status.ok()) basis_.driver.cuda.cuCtxSynchronize();
  for (Copier& copier : copiers_) {
    // A lost context frees nothing (rule 9).
    if (basis_.device->health().broken()) copier.staging.Abandon();
    copier = Copier();
  }
  progress_.reset();
  return status;
}

// The program has freed it perhaps; then it stays closed for others, who read on once the pool is awake.
bool KeptBlocks::MayBeRead(engine::Address block) const {
  if (FindBlock(basis_, blocks_, block).ok()) return true;
  MutexLock lock(blocks_.mutex());
  const engine::Engine& engine = blocks_.engine();
  return engine.IsClosedBy(block, engine::Reason::kImporters) || engine.IsClosedBy(block, engine::Reason::kRanks);
}

// A search by halves, for a pool may keep many thousand blocks.
KeptBlocks::Copies::iterator KeptBlocks::From(engine::Address address) {
  return std::ranges::partition_point(copies_, [&](const Copy& before) { return before.end() <= address; });
}

// A block that was kept before, at the same place and of the same size, gets its memory again. It keeps its old bytes
// too if it is a constant and nobody has freed it since: the block's mark says so.
KeptBlocks::Copies KeptBlocks::Wanted(const KeptCopies& wanted) {
  Copies copies;
  for (const commpool_block& block : ListBlocks(basis_, blocks_)) {
    Copy copy;
    copy.device = {reinterpret_cast<engine::Address>(block.pointer), block.bytes};
    copy.segment = block.segment;
    const bool live = block.state == COMMPOOL_BLOCK_LIVE;
    // The program cannot name a block that it has freed.
    if (!live && (block.state != COMMPOOL_BLOCK_PENDING || !MayBeRead(copy.device.address))) continue;
    const bool constant = Names(wanted.constants, copy.device);
    if (live && !wanted.all && !constant && !Names(wanted.blocks, copy.device)) continue;
    const auto before = From(copy.device.address);
    if (before != copies_.end() && before->device.address == copy.device.address &&
        before->device.bytes == copy.device.bytes) {
      copy.memory = before->memory;
      copy.offset = before->offset;
      copy.made = before->made && before->constant && constant && IsCopied(copy.device.address);
    }
    copy.constant = constant;
    copies.push_back(std::move(copy));
  }
  std::ranges::sort(copies, {}, [](const Copy& copy) { return copy.device.address; });
  return copies;
}

// Neighbours on the device become neighbours on the host, so that one copy takes them together (Start).
Status KeptBlocks::MakePlaces(const KeptCopies& wanted, Copies& copies) {
  const bool files = wanted.in == KeptIn::kFiles;
  for (auto first = copies.begin(); first != copies.end();) {
    // All new copies share one piece of memory, or one file for each segment.
    auto last = first;
    uint64_t bytes = 0;
    engine::Address end = 0;
    for (; last != copies.end() && (!files || last->segment == first->segment); ++last) {
      if (last->memory != nullptr) continue;
      // In a file only blocks that are neighbours on the device may share a page: others begin on a new one.
      if (files && last->device.address != end) {
        bytes = RoundUp(bytes, KeptFile::kAlignment) + last->device.address % KeptFile::kAlignment;
      }
      last->offset = bytes;
      bytes += last->device.bytes;
      end = last->end();
    }
    if (bytes != 0) {
      KeptMemory made = COMMPOOL_TRY(KeptMemory::Make(basis_.driver, wanted, bytes, account_));
      const auto memory = std::make_shared<KeptMemory>(std::move(made));
      for (; first != last; ++first) {
        if (first->memory == nullptr) first->memory = memory;
      }
    }
    first = last;
  }
  return Status();
}

// The growth lock and a quiet device keep the blocks as they are; a free that comes meanwhile changes no contents.
Status KeptBlocks::Keep(const KeptCopies& wanted) {
  const ContextGuard current = basis_.MakeCurrent();
  // A sealed file is not written again, and memory of another kind cannot be used.
  if (wanted.in == KeptIn::kFiles || wanted.in != in_) DropAll();
  Copies copies = Wanted(wanted);
  {
    MutexLock lock(blocks_.mutex());
    blocks_.engine().EndMarks(engine::Mark::kCopied);  // this sleep decides anew which copies are true
  }
  copies_.clear();  // releases the copies of blocks that are gone, before new memory is made
  Status status = MakePlaces(wanted, copies);
  copies_ = std::move(copies);
  in_ = wanted.in;
  if (wanted.retain) retain_ = true;
  if (status.ok()) status = CopyAll();
  // All copies or none: the pool stays awake, and its blocks have their contents.
  if (!status.ok()) DropAll();
  return status;
}

// Copies what is not there yet. A file is sealed once all of its bytes are in it.
Status KeptBlocks::CopyAll() {
  uint64_t bytes = 0;
  for (const Copy& copy : copies_) bytes += copy.made ? 0 : copy.device.bytes;
  // Copies that were started must end, even if a later one could not start.
  transfer_.Begin("keeping", bytes);
  COMMPOOL_TRY(transfer_.Await(Start({.address = 0, .bytes = UINT64_MAX}, HostCopies::Direction::kToHost)));
  const KeptMemory* sealed = nullptr;
  for (Copy& copy : copies_) {
    copy.made = true;
    if (copy.memory.get() == sealed) continue;
    COMMPOOL_TRY(copy.memory->Seal());
    sealed = copy.memory.get();
  }
  return Status();
}

// Called for the whole pool as it falls asleep, and for each part of a segment as it wakes. So a run of neighbours may
// reach beyond the range, and is cut there.
Status KeptBlocks::Start(engine::SegmentRange range, HostCopies::Direction direction) {
  const engine::Address end = range.address + range.bytes;
  for (auto copy = From(range.address); copy != copies_.end() && copy->device.address < end;) {
    // Blocks that are neighbours on the device and on the host go in one copy.
    const Copy& first = *copy;
    engine::Address to = first.device.address;
    for (; copy != copies_.end() && copy->device.address == to && copy->memory == first.memory &&
           copy->offset == first.offset + (to - first.device.address) && copy->made == first.made;
         ++copy) {
      to = copy->end();
    }
    if (direction == HostCopies::Direction::kToHost && first.made) continue;
    const engine::Address from = std::max(first.device.address, range.address);
    const HostCopies::Run run{.device = from,
                              .memory = first.memory.get(),
                              .offset = first.offset + (from - first.device.address),
                              .bytes = std::min(to, end) - from};
    COMMPOOL_TRY(transfer_.Start(run, direction));
  }
  return Status();
}

void KeptBlocks::DropFreed() {
  const ContextGuard current = basis_.MakeCurrent();
  std::erase_if(copies_, [&](const Copy& copy) { return !MayBeRead(copy.device.address); });
}

// A block that was freed in sleep cannot be marked, so its copy goes.
void KeptBlocks::LetGo() {
  // Another thread may have destroyed the pool meanwhile: nobody drops the copies after that.
  if (!retain_ || in_ == KeptIn::kFiles || !basis_.life.asleep()) return DropAll();
  const ContextGuard current = basis_.MakeCurrent();
  std::erase_if(copies_,
                [&](const Copy& copy) { return !blocks_.SetMark(copy.device.address, engine::Mark::kCopied); });
}

void KeptBlocks::SetRetain(Retain retain) {
  MutexLock growth(basis_.growth());
  if (retain != Retain::kAsBefore) retain_ = retain == Retain::kCopies;
}

// Asleep, a block that is live has its copy. Awake, only the mark tells that it is still the same block.
Result<const std::byte*> KeptBlocks::FindKept(const engine::SegmentRange& range) {
  if (basis_.life.closed()) return FailedPrecondition("it is closed, and keeps nothing");
  const bool asleep = basis_.life.asleep();
  const auto copy = From(range.address);
  const bool found =
      copy != copies_.end() && copy->device.address <= range.address && range.bytes <= copy->end() - range.address;
  if (!found && !asleep && copies_.empty()) {
    return FailedPrecondition("it is awake, and its copies are gone: nobody asked to retain them");
  }
  if (!found) return NotFound("it has kept no ", FormatBytes(range.bytes), ": they were discarded, or in no block");
  const engine::Address block = copy->device.address;
  const bool freed = asleep ? !FindBlock(basis_, blocks_, block).ok() : !IsCopied(block);
  if (freed) return NotFound("the block was freed since it was kept");
  const std::byte* const start = COMMPOOL_TRY(copy->memory->Read());
  return start + copy->offset + (range.address - copy->device.address);
}

// The first lock waits for a sleep or a wake that is under way, the second for a thread that ends the pool (Drop).
Result<const std::byte*> KeptBlocks::Find(CUdeviceptr address, uint64_t bytes) {
  MutexLock collective(basis_.collective);
  MutexLock growth(basis_.growth());
  return basis_.Named(FindKept({address, bytes}), "kept");
}

// Where the context is lost pinned memory stays with the process.
void KeptBlocks::DropAll() {
  if (copies_.empty()) return;
  const ContextGuard current = basis_.MakeCurrent();
  if (basis_.device->health().broken()) Abandon();
  copies_.clear();
}

// A sleep under way keeps its blocks first.
void KeptBlocks::Drop() {
  MutexLock growth(basis_.growth());
  DropAll();
}

void KeptBlocks::Abandon() {
  for (const Copy& copy : copies_) {
    if (copy.memory != nullptr) copy.memory->Abandon();
  }
}

}  // namespace commpool::internal
