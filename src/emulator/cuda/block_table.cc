#include "src/emulator/cuda/block_table.h"

#include <iterator>
#include <utility>

namespace commpool::internal::emulator {

std::string AnnouncedBlock::Describe() const {
  return "block of " + std::to_string(bytes) + " bytes allocated as #" + std::to_string(number) + " for stream " +
         std::to_string(stream) + " by pool " + pool + (freed ? ", freed" : "");
}

// What a framework's allocator heard since the memory was free says nothing of this memory.
void BlockTable::Allocated(CUdeviceptr address, uint64_t bytes, uint64_t stream, std::string pool,
                           std::shared_ptr<const Clock> heard) {
  if (bytes == 0 || address + bytes < address) return;
  const std::shared_ptr<const AnnouncedBlock> before = Forget(address, bytes);
  auto block = std::make_shared<AnnouncedBlock>();
  block->address = address;
  block->bytes = bytes;
  block->number = ++last_number_;
  block->stream = stream;
  block->pool = std::move(pool);
  const bool was_ended = before != nullptr && before->ended != AnnouncedBlock::kLives && before->pool == block->pool;
  block->heard = was_ended ? before->heard : std::move(heard);
  pieces_.emplace(address, Piece{address + bytes, std::move(block)});
}

// Operations that were submitted before keep the block as it was.
std::shared_ptr<const AnnouncedBlock> BlockTable::Ended(CUdeviceptr address, std::shared_ptr<const Clock> heard) {
  const auto found = pieces_.find(address);
  if (found == pieces_.end() || found->second.block->address != address) return nullptr;
  auto ended = std::make_shared<AnnouncedBlock>(*found->second.block);
  ended->ended = ++last_end_;
  ended->heard = std::move(heard);
  return found->second.block = std::move(ended);
}

void BlockTable::Freed(CUdeviceptr address) {
  const auto found = pieces_.find(address);
  if (found != pieces_.end() && found->second.block->address == address) found->second.block->freed = true;
}

void BlockTable::SetAsleep(CUdeviceptr address, uint64_t bytes, bool asleep) {
  if (asleep) {
    sleeping_[address] = address + bytes;
  } else {
    sleeping_.erase(address);
  }
}

bool BlockTable::IsAsleep(CUdeviceptr address) const {
  const auto after = sleeping_.upper_bound(address);
  return after != sleeping_.begin() && address < std::prev(after)->second;
}

std::shared_ptr<const AnnouncedBlock> BlockTable::Forget(CUdeviceptr address, uint64_t bytes) {
  std::shared_ptr<const AnnouncedBlock> last;
  const CUdeviceptr end = address + bytes;
  auto next = pieces_.upper_bound(address);
  if (next != pieces_.begin() && std::prev(next)->second.end > address) --next;
  while (next != pieces_.end() && next->first < end) {
    const auto [begin, piece] = *next;
    next = pieces_.erase(next);
    if (last == nullptr || last->ended < piece.block->ended) last = piece.block;
    if (begin < address) pieces_.emplace(begin, Piece{address, piece.block});
    if (piece.end > end) pieces_.emplace(end, piece);
  }
  return last != nullptr && last->ended == AnnouncedBlock::kLives ? nullptr : last;
}

std::shared_ptr<const AnnouncedBlock> BlockTable::At(CUdeviceptr address) const {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return nullptr;
  const Piece& before = std::prev(after)->second;
  return address < before.end ? before.block : nullptr;
}

std::optional<BlockMisuse> BlockTable::Check(const commpoolEmulatorRange& range, Ends ends) const {
  if (IsAsleep(range.address)) return std::nullopt;
  const CUdeviceptr end = range.address + range.bytes;
  const std::shared_ptr<const AnnouncedBlock> own = At(range.address);
  if (own != nullptr && own->freed) return BlockMisuse{"use of a freed block", own->Describe()};
  for (auto next = pieces_.upper_bound(range.address); next != pieces_.end() && next->first < end; ++next) {
    const AnnouncedBlock& other = *next->second.block;
    if (ends == Ends::kCount && own != nullptr && own.get() != &other) {
      return BlockMisuse{"access beyond a block", own->Describe() + ", and into the " + other.Describe()};
    }
    if (other.freed) return BlockMisuse{"use of a freed block", other.Describe()};
  }
  return std::nullopt;
}

}  // namespace commpool::internal::emulator
