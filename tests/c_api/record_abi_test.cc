// Recordings through the C ABI: arguments, a recording in the middle of a program, one pool of several.
#include <gtest/gtest.h>

#include <string>

#include "commpool/record.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/recording/recorded_entries.h"

namespace commpool::internal::testing {
namespace {

using recording::testing::Folder;
using recording::testing::ReadRecording;

void Expect(commpool_status status, commpool_status expected, const char* part) {
  EXPECT_EQ(status, expected) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
}

// Hides a number from the compiler.
template <typename Enum>
Enum As(int number) {
  return static_cast<Enum>(number);
}

class RecordAbi : public ::testing::Test {
 protected:
  RecordAbi() : context_(PrimaryContext::Retain(*SharedDriver(), 0).value()), current_(*SharedDriver(), context_) {
    commpool_record_options_init(&options_);
    options_.directory = folder_.path().c_str();
  }

  static commpool_pool Pool(const char* name) {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.name = name;
    commpool_pool pool = 0;
    EXPECT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
    return pool;
  }
  static void* Allocate(commpool_pool pool) {
    void* block = nullptr;
    EXPECT_EQ(commpool_pool_allocate(pool, 3 << 20, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
    return block;
  }
  void Begin() { ASSERT_EQ(commpool_record(&options_), COMMPOOL_OK) << commpool_last_error(); }
  recording::testing::Recording Ended() {
    EXPECT_EQ(commpool_record(nullptr), COMMPOOL_OK) << commpool_last_error();
    return ReadRecording(folder_.File());
  }

  PrimaryContext context_;
  ContextGuard current_;
  const Folder folder_;
  commpool_record_options options_;
};

TEST_F(RecordAbi, RefusesArgumentsInWords) {
  options_.limit_bytes = 100;
  Expect(commpool_record(&options_), COMMPOOL_INVALID_ARGUMENT, "1 MiB is the least");
  options_.limit_bytes = 1 << 20;
  options_.stacks = As<commpool_stacks>(7);
  Expect(commpool_record(&options_), COMMPOOL_INVALID_ARGUMENT, "stacks");
  options_.stacks = COMMPOOL_STACKS_NONE;
  options_.pool = 987654;
  Expect(commpool_record(&options_), COMMPOOL_NOT_FOUND, "987654");
  options_.pool = 0;
  options_.directory = "";
  Expect(commpool_record(&options_), COMMPOOL_INVALID_ARGUMENT, "directory");
  options_.directory = "/proc/none/here";
  Expect(commpool_record(&options_), COMMPOOL_INVALID_ARGUMENT, "/proc/none/here");
  options_.struct_bytes = 1;
  Expect(commpool_record(&options_), COMMPOOL_INVALID_ARGUMENT, "record_options");
  EXPECT_EQ(folder_.File(), "") << "a refused call leaves no file";
}

TEST_F(RecordAbi, OneAtATime) {
  Expect(commpool_record(nullptr), COMMPOOL_FAILED_PRECONDITION, "no recording is under way");
  Begin();
  Expect(commpool_record(&options_), COMMPOOL_FAILED_PRECONDITION, "is under way");
  Ended();
  Begin();
  Ended();
}

// As a program does that looks for the step in which its memory runs out.
TEST_F(RecordAbi, BeginsInTheMiddleWithAllThatThereIs) {
  const commpool_pool pool = Pool("before");
  void* const before = Allocate(pool);
  Begin();
  void* const later = Allocate(pool);
  EXPECT_EQ(commpool_free(before), COMMPOOL_OK);
  const auto read = Ended();
  EXPECT_EQ(commpool_free(later), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
  ASSERT_EQ(read.All<recording::BlockServed>().size(), 2u);
  EXPECT_EQ(read.All<recording::BlockServed>()[0].address, reinterpret_cast<uint64_t>(before));
  ASSERT_EQ(read.All<recording::BlockFreed>().size(), 1u);
  uint64_t bytes = 0;
  for (const auto& segment : read.All<recording::SegmentMade>()) bytes += segment.bytes;
  EXPECT_GE(bytes, uint64_t{6} << 20);
}

TEST_F(RecordAbi, ShowsWhereAProgramInCAsked) {
  const commpool_pool pool = Pool("stacks");
  void* const was_there = Allocate(pool);  // nobody knows any more where the program asked
  options_.stacks = COMMPOOL_STACKS_NATIVE;
  Begin();
  EXPECT_EQ(commpool_free(Allocate(pool)), COMMPOOL_OK);
  EXPECT_EQ(commpool_free(was_there), COMMPOOL_OK);
  const auto read = Ended();
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
  ASSERT_EQ(read.All<recording::BlockServed>().size(), 2u);
  EXPECT_EQ(read.All<recording::BlockServed>()[0].stack, 0u);
  const std::string stack = read.texts.at(read.All<recording::BlockServed>()[1].stack);
  EXPECT_EQ(stack.substr(0, stack.find_first_of("+ ")), "record_abi_test") << "a frame of the library's: " << stack;
}

TEST_F(RecordAbi, TakesOnePoolOfSeveral) {
  const commpool_pool wanted = Pool("wanted");
  const commpool_pool other = Pool("other");
  options_.pool = wanted;
  Begin();
  void* const blocks[] = {Allocate(wanted), Allocate(other)};
  const auto read = Ended();
  for (void* const block : blocks) EXPECT_EQ(commpool_free(block), COMMPOOL_OK);
  for (const commpool_pool pool : {wanted, other}) EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
  ASSERT_EQ(read.All<recording::PoolMade>().size(), 1u);
  EXPECT_EQ(read.texts.at(read.All<recording::PoolMade>()[0].name), "wanted");
  EXPECT_EQ(read.All<recording::BlockServed>().size(), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
