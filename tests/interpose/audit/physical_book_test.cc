#include "src/interpose/audit/physical_book.h"

#include <gtest/gtest.h>

namespace commpool::audit {
namespace {

TEST(PhysicalBook, MemoryGoesWithItsLastHandle) {
  PhysicalBook book;
  const PhysicalId memory = book.Make(7);
  EXPECT_EQ(book.TakeHandle(7), memory);
  EXPECT_TRUE(book.DropHandle(memory));
}

TEST(PhysicalBook, AMappingOutlivesItsHandle) {
  PhysicalBook book;
  const PhysicalId memory = book.Make(7);
  book.Map(0x1000, 0x100, 7);
  EXPECT_FALSE(book.DropHandle(book.TakeHandle(7)));
  const auto parts = book.TakeMapped(0x1000, 0x100);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].physical, memory);
  EXPECT_TRUE(book.DropMapped(memory));
}

TEST(PhysicalBook, ARetainedHandleIsOneMore) {
  PhysicalBook book;
  const PhysicalId memory = book.Make(7);
  book.Map(0x1000, 0x100, 7);
  book.Retain(7, 0x1080);
  EXPECT_FALSE(book.DropHandle(book.TakeHandle(7)));
  for (const MappedPart& part : book.TakeMapped(0x1000, 0x100)) EXPECT_FALSE(book.DropMapped(part.physical));
  EXPECT_TRUE(book.DropHandle(book.TakeHandle(7)));
  EXPECT_EQ(book.TakeHandle(7), kNoPhysical);
  EXPECT_FALSE(book.DropHandle(memory));
}

TEST(PhysicalBook, AHandleThatComesAgainNamesOtherMemory) {
  PhysicalBook book;
  const PhysicalId first = book.Make(7);
  book.Map(0x1000, 0x100, 7);
  book.DropHandle(book.TakeHandle(7));
  const PhysicalId second = book.Make(7);
  EXPECT_NE(first, second);
  EXPECT_TRUE(book.DropHandle(book.TakeHandle(7)));
}

TEST(PhysicalBook, TakesWholeMappingsInsideOfARangeAlone) {
  PhysicalBook book;
  book.Make(7);
  book.Map(0x1000, 0x100, 7);
  book.Map(0x1100, 0x100, 7);
  book.Map(0x1200, 0x100, 7);
  EXPECT_EQ(book.TakeMapped(0x1000, 0x200).size(), 2u);
  EXPECT_EQ(book.TakeMapped(0x1200, 0x80).size(), 0u);
}

TEST(PhysicalBook, WhatIsPutBackCanBeTakenAgain) {
  PhysicalBook book;
  const PhysicalId memory = book.Make(7);
  book.Map(0x1000, 0x100, 7);
  book.PutBackMapped(book.TakeMapped(0x1000, 0x100));
  book.PutBackHandle(7, book.TakeHandle(7));
  EXPECT_FALSE(book.DropHandle(book.TakeHandle(7)));
  EXPECT_EQ(book.TakeMapped(0x1000, 0x100).size(), 1u);
  EXPECT_TRUE(book.DropMapped(memory));
}

TEST(PhysicalBook, KnowsNothingOfMemoryThatItNeverSaw) {
  PhysicalBook book;
  EXPECT_EQ(book.TakeHandle(9), kNoPhysical);
  EXPECT_FALSE(book.DropHandle(kNoPhysical));
  book.Map(0x1000, 0x100, 9);
  const auto parts = book.TakeMapped(0x1000, 0x100);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(book.DropMapped(parts[0].physical));
}

}  // namespace
}  // namespace commpool::audit
