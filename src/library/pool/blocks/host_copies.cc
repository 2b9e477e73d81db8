// Copies between a device and the host: what they lie in there, and four copiers that take turns.
#include "src/library/pool/blocks/host_copies.h"

#include <algorithm>

#include "src/library/base/bytes.h"
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

}  // namespace

// Takes room in the account first, as all memory does; it goes back with the object.
Result<KeptMemory> KeptMemory::Make(const Driver& driver, const KeptCopies& copies, uint64_t bytes,
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

// Pageable memory has an address for the driver too: it copies such memory by itself, only slower.
CUdeviceptr KeptMemory::address() const {
  if (const auto* const pinned = std::get_if<PinnedMemory>(&place_)) return pinned->address();
  const auto* const pages = std::get_if<HostPages>(&place_);
  return pages == nullptr ? 0 : reinterpret_cast<CUdeviceptr>(pages->data());
}

// A file is mapped at its first read, and checked against its seal.
Result<const std::byte*> KeptMemory::Read() {
  return file() == nullptr ? reinterpret_cast<const std::byte*>(address()) : file()->Map();
}

// Only pinned memory is the driver's; pages and files are the system's.
void KeptMemory::Abandon() {
  if (auto* const pinned = std::get_if<PinnedMemory>(&place_)) pinned->Abandon();
}

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

}  // namespace commpool::internal
