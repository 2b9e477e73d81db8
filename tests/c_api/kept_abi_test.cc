// What pools keep, through kept.h and the C++ skin: values, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "commpool/kept.h"
#include "commpool/pool.h"

namespace {

using commpool::Buffer;
using commpool::MiB;
using commpool::Pool;
using commpool::SleepOptions;

Pool Make() {
  commpool::PoolOptions options;
  options.name = "keeper";
  return Pool::create(options).value();
}

void Expect(const commpool::Status& status, commpool::StatusCode code, const char* part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(KeptAbi, IsReadAsleepAndRetained) {
  Pool pool = Make();
  Buffer block = pool.allocate(MiB(8), nullptr).value();
  SleepOptions options;
  options.kept_in = commpool::KeptIn::kPageable;
  pool.sleep(options).or_throw();
  const void* const place = pool.kept(block.data(), MiB(8)).value();
  EXPECT_NE(place, nullptr);
  pool.wake(commpool::LiveGraphs::kRefused, commpool::Retain::kCopies).or_throw();
  EXPECT_EQ(pool.kept(block.data(), MiB(8)).value(), place);
  Expect(pool.kept(block.data(), MiB(9)).status(), commpool::StatusCode::kNotFound, "has kept no 9 MiB");
}

TEST(KeptAbi, SeveralPoolsKeepWhatIsNamedInAnyOfThem) {
  Pool first = Make();
  Pool second = Make();
  Buffer named = first.allocate(MiB(4), nullptr).value();
  Buffer other = second.allocate(MiB(4), nullptr).value();
  const commpool_pool both[] = {first.handle(), second.handle()};
  const void* const blocks[] = {named.data()};
  commpool_sleep_options c_options;
  commpool_sleep_options_init(&c_options);
  c_options.blocks = blocks;
  c_options.block_count = 1;
  ASSERT_EQ(commpool_pools_sleep_keeping(both, 2, &c_options), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(first.stats().value().kept_bytes, MiB(4));
  EXPECT_EQ(second.stats().value().kept_bytes, 0u);
  ASSERT_EQ(commpool_pools_wake(both, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE), COMMPOOL_OK)
      << commpool_last_error();
  SleepOptions options;
  options.blocks.emplace();  // none at all
  first.sleep(options).or_throw();
  EXPECT_EQ(first.stats().value().kept_bytes, 0u);
}

TEST(KeptAbi, RefusesOptionsThatExcludeEachOther) {
  Pool pool = Make();
  const auto refused = [&](const SleepOptions& options, const char* part) {
    Expect(pool.sleep(options), commpool::StatusCode::kInvalidArgument, part);
    EXPECT_EQ(pool.stats().value().asleep_bytes, 0u);
  };
  pool.reserve(MiB(4)).or_throw();
  int anything = 0;
  SleepOptions files;
  files.kept_in = commpool::KeptIn::kFiles;
  refused(files, "FILES needs a directory");
  files.directory = "/tmp";
  files.retain = true;
  refused(files, "files are not retained");
  SleepOptions pinned;
  pinned.directory = "/tmp";
  refused(pinned, "directory is for kept_in FILES");
  for (const int given : {0, 1, 2}) {
    SleepOptions discarded;
    discarded.keep = commpool::Keep::kDiscard;
    if (given == 0) discarded.blocks.emplace();
    if (given == 1) discarded.retain = true;
    if (given == 2) discarded.constants = {&anything};
    refused(discarded, "keep DISCARD keeps nothing");
  }
  SleepOptions constants;
  constants.constants = {&anything};
  refused(constants, "set retain");
  constants.retain = true;
  refused(constants, "constants 0");
  SleepOptions blocks;
  blocks.blocks = {&anything};
  refused(blocks, "blocks 0");
}

TEST(KeptAbi, RefusesWhatItDoesNotKnow) {
  Pool pool = Make();
  const commpool_pool handle = pool.handle();
  EXPECT_EQ(commpool_pools_sleep_keeping(&handle, 1, nullptr), COMMPOOL_INVALID_ARGUMENT);
  commpool_sleep_options options;
  commpool_sleep_options_init(&options);
  commpool_sleep_options_init(nullptr);
  options.kept_in = static_cast<commpool_kept_in>(2 + 1);
  EXPECT_EQ(commpool_pools_sleep_keeping(&handle, 1, &options), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("kept_in 3 is none of PINNED, PAGEABLE, FILES"), std::string::npos);
  options.struct_bytes = 8;
  EXPECT_EQ(commpool_pools_sleep_keeping(&handle, 1, &options), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("struct_bytes is 8"), std::string::npos);
  EXPECT_EQ(commpool_pool_kept(handle, &options, 1, nullptr), COMMPOOL_INVALID_ARGUMENT);
  const void* kept = nullptr;
  EXPECT_EQ(commpool_pool_kept(handle, &options, 1, &kept), COMMPOOL_FAILED_PRECONDITION);
  EXPECT_EQ(commpool_pool_kept(0, &options, 1, &kept), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pools_wake(&handle, 1, COMMPOOL_GRAPHS_REFUSED, static_cast<commpool_retain>(2 + 1)),
            COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("retain 3 is none of"), std::string::npos);
}

}  // namespace
