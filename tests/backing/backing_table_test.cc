#include "src/library/backing/backing_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace commpool::internal {
namespace {

TEST(BackingTable, NumbersAreThoseOfTheCAbi) {
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_VMM)->name, "vmm");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_CUDA)->name, "cuda");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_NCCL)->name, "nccl");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_USER)->name, "user");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_PINNED)->name, "pinned");
}

TEST(BackingTable, FindsEachRowByNumberAndByName) {
  std::set<std::string> names;
  for (const BackingRow* row : AllBackings()) {
    EXPECT_EQ(FindBacking(row->kind), row);
    EXPECT_EQ(FindBacking(row->name), row);
    EXPECT_STREQ(Name(row->kind), row->name);
    names.insert(row->name);
  }
  EXPECT_EQ(names.size(), AllBackings().size()) << "no two share a name";
}

TEST(BackingTable, HasNoRowForAnUnknownBacking) {
  EXPECT_EQ(FindBacking(17), nullptr);
  EXPECT_EQ(FindBacking(-1), nullptr);
  EXPECT_EQ(FindBacking("vm"), nullptr);
  EXPECT_EQ(FindBacking(""), nullptr);
  EXPECT_STREQ(Name(static_cast<BackingKind>(17)), "unknown");
}

TEST(BackingTable, NamesThoseThatFit) {
  EXPECT_EQ(NamesOfBackings([](const BackingRow&) { return true; }), "vmm, nccl, cuda, pinned, user");
  EXPECT_EQ(NamesOfBackings([](const BackingRow& row) { return row.maker == Maker::kProgram; }), "user");
  EXPECT_EQ(NamesOfBackings([](const BackingRow&) { return false; }), "");
}

}  // namespace
}  // namespace commpool::internal
