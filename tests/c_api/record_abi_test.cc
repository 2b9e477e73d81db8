// Recordings through the C ABI: arguments, a recording in the middle of a program, one pool of several.
#include <gtest/gtest.h>

#include <string>

#include "commpool/record.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/recording/recorded_entries.h"

namespace commpool::internal::testing {
namespace {

using recording::testing::Folder;
using recording::testing::ReadRecording;

class RecordAbi : public ::testing::Test {
 protected:
  RecordAbi() : context_(PrimaryContext::Retain(*SharedDriver(), 0).value()), current_(*SharedDriver(), context_) {
    commpool_record_options_init(&options_);
    options_.directory = folder_.path().c_str();
  }

  static void* Allocate(commpool_pool pool) { return testing::Allocate(pool, 3 << 20); }
  void Begin() { ExpectOk(commpool_record(&options_)); }
  recording::testing::Recording Ended() {
    ExpectOk(commpool_record(nullptr));
    return ReadRecording(folder_.File());
  }

  PrimaryContext context_;
  ContextGuard current_;
  const Folder folder_;
  commpool_record_options options_;
};

TEST_F(RecordAbi, RefusesArgumentsInWords) {
  options_.limit_bytes = 100;
  ExpectInvalid(commpool_record(&options_), "1 MiB is the least");
  options_.limit_bytes = 1 << 20;
  options_.stacks = As<commpool_stacks>(7);
  ExpectInvalid(commpool_record(&options_), "stacks");
  options_.stacks = COMMPOOL_STACKS_NONE;
  options_.pool = 987654;
  ExpectNotFound(commpool_record(&options_), "987654");
  options_.pool = 0;
  options_.directory = "";
  ExpectInvalid(commpool_record(&options_), "directory");
  options_.directory = "/proc/none/here";
  ExpectInvalid(commpool_record(&options_), "/proc/none/here");
  options_.struct_bytes = 1;
  ExpectInvalid(commpool_record(&options_), "record_options");
  EXPECT_EQ(folder_.File(), "") << "a refused call leaves no file";
}

TEST_F(RecordAbi, OneAtATime) {
  ExpectFailure(commpool_record(nullptr), COMMPOOL_FAILED_PRECONDITION, "no recording is under way");
  Begin();
  ExpectFailure(commpool_record(&options_), COMMPOOL_FAILED_PRECONDITION, "is under way");
  Ended();
  Begin();
  Ended();
}

// As a program does that looks for the step in which its memory runs out.
TEST_F(RecordAbi, BeginsInTheMiddleWithAllThatThereIs) {
  const OwnedPool pool(Named("before"));
  void* const before = Allocate(pool);
  Begin();
  void* const later = Allocate(pool);
  Free(before);
  const auto read = Ended();
  Free(later);
  ASSERT_EQ(read.All<recording::BlockServed>().size(), 2u);
  EXPECT_EQ(read.All<recording::BlockServed>()[0].address, reinterpret_cast<uint64_t>(before));
  ASSERT_EQ(read.All<recording::BlockFreed>().size(), 1u);
  uint64_t bytes = 0;
  for (const auto& segment : read.All<recording::SegmentMade>()) bytes += segment.bytes;
  EXPECT_GE(bytes, uint64_t{6} << 20);
}

TEST_F(RecordAbi, ShowsWhereAProgramInCAsked) {
  const OwnedPool pool(Named("stacks"));
  void* const was_there = Allocate(pool);  // nobody knows any more where the program asked
  options_.stacks = COMMPOOL_STACKS_NATIVE;
  Begin();
  Free(Allocate(pool));
  Free(was_there);
  const auto read = Ended();
  ASSERT_EQ(read.All<recording::BlockServed>().size(), 2u);
  EXPECT_EQ(read.All<recording::BlockServed>()[0].stack, 0u);
  const std::string stack = read.texts.at(read.All<recording::BlockServed>()[1].stack);
  EXPECT_EQ(stack.substr(0, stack.find_first_of("+ ")), "record_abi_test") << "a frame of the library's: " << stack;
}

TEST_F(RecordAbi, TakesOnePoolOfSeveral) {
  const OwnedPool wanted(Named("wanted"));
  const OwnedPool other(Named("other"));
  options_.pool = wanted;
  Begin();
  void* const blocks[] = {Allocate(wanted), Allocate(other)};
  const auto read = Ended();
  for (void* const block : blocks) Free(block);
  ASSERT_EQ(read.All<recording::PoolMade>().size(), 1u);
  EXPECT_EQ(read.texts.at(read.All<recording::PoolMade>()[0].name), "wanted");
  EXPECT_EQ(read.All<recording::BlockServed>().size(), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
