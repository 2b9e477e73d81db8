// What lies where: the block that holds a pointer, and the segments and blocks of a pool. Any thread.
//
//   for (const Block& block : blocks_of(pool).value()) draw(block.pointer, block.bytes, block.state);
//
// Header-only, over the C ABI; compiles as C++17. See commpool_block_of and commpool_pool_blocks.
#ifndef COMMPOOL_LISTING_H_
#define COMMPOOL_LISTING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

// commpool_block in commpool.h describes the fields.
using Block = commpool_block;

struct Segment {
  void* pointer = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;
};

// The live block that holds a pointer; nothing for one that is in no block.
inline std::optional<Block> block_of(const void* pointer) {
  Block block = {};
  if (commpool_block_of(pointer, &block, sizeof(block)) != COMMPOOL_OK) return std::nullopt;
  return block;
}

// By segment and address. Other threads may change the pool meanwhile: the list shows one moment.
inline Result<std::vector<Block>> blocks_of(const Pool& pool) {
  std::vector<Block> blocks;
  for (;;) {
    std::size_t count = 0;
    Status status =
        detail::FromC(commpool_pool_blocks(pool.handle(), blocks.data(), sizeof(Block), blocks.size(), &count));
    if (!status.ok()) return status;
    const bool whole = count <= blocks.size();
    blocks.resize(count);
    if (whole) return blocks;
  }
}

// The segments that a pool's blocks fill, by their numbers.
inline std::vector<Segment> segments_of(const std::vector<Block>& blocks) {
  std::vector<Segment> segments;
  for (const Block& block : blocks) {
    if (segments.empty() || segments.back().number != block.segment)
      segments.push_back({block.pointer, 0, block.segment});
    segments.back().bytes += block.bytes;
  }
  return segments;
}

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_LISTING_H_
