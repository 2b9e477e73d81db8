#include "src/pool/blocks/kept_memory.h"

#include <utility>

#include "src/base/bytes.h"
#include "src/base/try.h"

namespace commpool::internal {

Result<KeptMemory> KeptMemory::Make(const Driver& driver, const KeptCopies& copies, uint64_t bytes,
                                    MemoryAccount& account) {
  if (copies.in == KeptIn::kFiles) bytes = RoundUp(bytes, KeptFile::kAlignment);
  if (!account.Take(bytes)) return Status(StatusCode::kOutOfMemory, "the blocks to keep exceed any host's memory");
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
  if (!pages.valid()) {
    return Status(StatusCode::kOutOfMemory, "the host has no " + FormatBytes(bytes) + " to keep blocks in");
  }
  return KeptMemory(std::move(pages), std::move(room));
}

CUdeviceptr KeptMemory::address() const {
  if (const auto* const pinned = std::get_if<PinnedMemory>(&place_)) return pinned->address();
  const auto* const pages = std::get_if<HostPages>(&place_);
  return pages == nullptr ? 0 : reinterpret_cast<CUdeviceptr>(pages->data());
}

Result<const std::byte*> KeptMemory::Read() {
  return file() == nullptr ? reinterpret_cast<const std::byte*>(address()) : file()->Map();
}

void KeptMemory::Abandon() {
  if (auto* const pinned = std::get_if<PinnedMemory>(&place_)) pinned->Abandon();
}

}  // namespace commpool::internal
