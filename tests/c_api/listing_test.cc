// Lists blocks, and finds the block of a pointer.
#include "commpool/listing.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
namespace {

uint64_t Bytes(const std::vector<Block>& blocks, commpool_block_state state) {
  uint64_t bytes = 0;
  for (const Block& block : blocks) bytes += block.state == state ? block.bytes : 0;
  return bytes;
}

TEST(Listing, FindsTheLiveBlockThatHoldsAPointer) {
  Pool pool = Pool::create({}).value();
  const Buffer small = pool.allocate(1000, nullptr).value();
  const Buffer large = pool.allocate(MiB(3), nullptr).value();
  for (const Buffer* buffer : {&small, &large}) {
    for (const uint64_t inside : {uint64_t{0}, buffer->bytes() - 1}) {
      const std::optional<Block> block = block_of(buffer->as<char>() + inside);
      ASSERT_TRUE(block);
      EXPECT_EQ(block->pointer, buffer->data());
      EXPECT_EQ(block->requested_bytes, buffer->bytes());
      EXPECT_GE(block->bytes, buffer->bytes());
      EXPECT_EQ(block->pool, pool.handle());
      EXPECT_EQ(block->device, 0);
      EXPECT_EQ(block->state, COMMPOOL_BLOCK_LIVE);
    }
  }
}

TEST(Listing, FindsNothingForOtherPointersAndKeepsTheLastError) {
  Pool pool = Pool::create({}).value();
  Buffer buffer = pool.allocate(1000, nullptr).value();
  void* const data = buffer.data();
  ASSERT_TRUE(buffer.free().ok());
  EXPECT_EQ(commpool_pool_close(987654), COMMPOOL_NOT_FOUND);
  const std::string sentence = commpool_last_error();
  Block block = {};
  block.bytes = 7;
  for (const void* const pointer :
       {static_cast<const void*>(data), static_cast<const void*>(&block), static_cast<const void*>(nullptr)}) {
    EXPECT_EQ(commpool_block_of(pointer, &block, sizeof(block)), COMMPOOL_NOT_FOUND);
  }
  EXPECT_EQ(block.bytes, 7u) << "outputs are not written";
  EXPECT_EQ(commpool_last_error(), sentence);
  EXPECT_EQ(commpool_block_of(data, &block, 8), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_block_of(data, nullptr, sizeof(block)), COMMPOOL_INVALID_ARGUMENT);
}

TEST(Listing, NamesNoPoolForABlockThatOutlivesItsOwn) {
  Buffer buffer;
  {
    Pool pool = Pool::create({}).value();
    buffer = pool.allocate(MiB(3), nullptr).value();
  }
  ASSERT_TRUE(block_of(buffer.data()));
  EXPECT_EQ(block_of(buffer.data())->bytes, MiB(3));
  EXPECT_EQ(block_of(buffer.data())->pool, 0u);
}

TEST(Listing, HasEveryByteOfAPoolOnce) {
  Pool pool = Pool::create({}).value();
  Buffer kept = pool.allocate(MiB(3), nullptr).value();
  Buffer freed = pool.allocate(MiB(5), nullptr).value();
  Buffer cached = pool.allocate(1000, nullptr).value();
  ASSERT_TRUE(freed.free().ok());
  ASSERT_TRUE(cached.free().ok());
  const std::vector<Block> blocks = blocks_of(pool).value();
  for (size_t place = 1; place < blocks.size(); ++place) {
    const Block& before = blocks[place - 1];
    if (before.segment == blocks[place].segment) {
      EXPECT_EQ(static_cast<const char*>(before.pointer) + before.bytes, blocks[place].pointer);
    } else {
      EXPECT_LT(before.segment, blocks[place].segment);
    }
  }
  uint64_t reserved = 0;
  for (const Segment& segment : segments_of(blocks)) reserved += segment.bytes;
  const Statistics stats = pool.stats().value();
  EXPECT_EQ(segments_of(blocks).size(), stats.reserved_segments.current);
  EXPECT_EQ(reserved, stats.reserved_bytes.current);
  EXPECT_EQ(Bytes(blocks, COMMPOOL_BLOCK_LIVE), stats.allocated_bytes.current);
  EXPECT_EQ(Bytes(blocks, COMMPOOL_BLOCK_CACHED), stats.cached_bytes);
  EXPECT_GT(stats.cached_bytes, 0u);
  EXPECT_EQ(Bytes(blocks, COMMPOOL_BLOCK_FREE), stats.free_bytes - stats.cached_bytes);
}

TEST(Listing, WritesAsMuchAsThereIsRoomFor) {
  Pool pool = Pool::create({}).value();
  ASSERT_TRUE(pool.reserve(MiB(2)).ok());
  const Buffer buffer = pool.allocate(MiB(1), nullptr).value();
  Block entries[2] = {};
  size_t count = 0;
  ExpectOk(commpool_pool_blocks(pool.handle(), entries, sizeof(Block), 1, &count));
  EXPECT_GE(count, 2u);
  EXPECT_NE(entries[0].pointer, nullptr);
  EXPECT_EQ(entries[1].pointer, nullptr) << "there was room for one";
  EXPECT_EQ(commpool_pool_blocks(pool.handle(), nullptr, 0, 0, nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pool_blocks(pool.handle(), entries, 8, 1, &count), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_pool_blocks(987654, nullptr, 0, 0, &count), COMMPOOL_NOT_FOUND);
}

}  // namespace
}  // namespace commpool::internal::testing
