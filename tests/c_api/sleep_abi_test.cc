// Pools that sleep and wake, and what they keep meanwhile, through the C ABI and the C++ skin: values, figures, and
// what is refused.
#include <gtest/gtest.h>

#include <vector>

#include "commpool/kept.h"
#include "commpool/pool.h"
#include "commpool/scope.h"
#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
namespace {

Pool Make(const char* name) { return Pool::create({.name = name}).value(); }

uint64_t Asleep(const Pool& pool) { return pool.stats().value().asleep_bytes; }

TEST(SleepAbi, TellsSleepAndKeptBytes) {
  Pool pool = Make("weights");
  Buffer block = pool.allocate(MiB(8), nullptr).value();
  pool.sleep(Keep::kHost).or_throw();
  EXPECT_EQ(Asleep(pool), pool.stats().value().reserved_bytes.current);
  EXPECT_EQ(pool.stats().value().kept_bytes, MiB(8));
  EXPECT_EQ(pool.allocate(KiB(1), nullptr).status().code(), StatusCode::kFailedPrecondition);
  pool.wake().or_throw();
  EXPECT_EQ(Asleep(pool), 0u);
}

TEST(SleepAbi, RefusesUnknownValues) {
  Pool pool = Make("pool");
  ExpectInvalid(commpool_pool_sleep(pool.handle(), As<commpool_keep>(7), COMMPOOL_GRAPHS_REFUSED),
                "keep 7 is none of DISCARD, HOST");
  ExpectInvalid(commpool_pool_sleep(pool.handle(), COMMPOOL_KEEP_DISCARD, As<commpool_graphs>(7)),
                "graphs 7 is none of REFUSED, NO_COLLECTIVES");
  ExpectFailure(commpool_pool_wake(pool.handle(), COMMPOOL_GRAPHS_REFUSED), COMMPOOL_FAILED_PRECONDITION,
                "it is not asleep");
  const commpool_pool handle = pool.handle();
  ExpectInvalid(commpool_pools_wake(&handle, 1, As<commpool_graphs>(7), COMMPOOL_RETAIN_AS_BEFORE),
                "graphs 7 is none of REFUSED, NO_COLLECTIVES, DISCARDED");
  ExpectInvalid(commpool_pools_wake(nullptr, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE), "pools is null");
}

TEST(SleepAbi, EverySleepWithoutAWordKeeps) {
  Pool pool = Make("kept");
  const Buffer block = pool.allocate(MiB(1), nullptr).value();
  const auto kept = [&] {
    const uint64_t bytes = pool.stats().value().kept_bytes;
    pool.wake().or_throw();
    return bytes;
  };
  pool.sleep().or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep({}).or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep(SleepOptions{}).or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep(Keep::kDiscard).or_throw();
  EXPECT_EQ(kept(), 0u);
}

// Of one without ranks beside others, and on another device: nobody sleeps where one cannot.
TEST(SleepAbi, SeveralPoolsSleepAndWakeAllOrNone) {
  const int device = Pool::create({.device = 1}).ok() ? 1 : 0;  // 0 on a machine with one GPU
  Pool first = Pool::create({.device = device}).value();
  Pool last = Make("last");
  Pool cannot = Pool::create({.name = "cannot", .device = device, .backing = Backing::kCuda}).value();
  for (Pool* pool : {&first, &last}) pool->reserve(MiB(4)).or_throw();
  const commpool_pool with_one_that_cannot[] = {first.handle(), cannot.handle(), last.handle()};
  ExpectFailure(commpool_pools_sleep(with_one_that_cannot, 3, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED),
                COMMPOOL_NOT_SUPPORTED, "sleep: memory of the cuda backing");
  for (const Pool* pool : {&first, &last}) EXPECT_EQ(Asleep(*pool), 0u);
  Buffer block = last.allocate(MiB(1), nullptr).value();  // they serve

  const commpool_pool both[] = {first.handle(), last.handle()};
  ExpectOk(commpool_pools_sleep(both, 2, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED));
  for (const Pool* pool : {&first, &last}) EXPECT_GT(Asleep(*pool), 0u);
  ExpectFailure(commpool_pools_wake(with_one_that_cannot, 3, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE),
                COMMPOOL_FAILED_PRECONDITION, "wake: it is not asleep");
  for (const Pool* pool : {&first, &last}) EXPECT_GT(Asleep(*pool), 0u);
  ExpectOk(commpool_pools_wake(both, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE));
  for (const Pool* pool : {&first, &last}) EXPECT_EQ(Asleep(*pool), 0u);
}

TEST(SleepAbi, AScopeRoutesToAPoolThatSleepsAndItsAllocationsFail) {
  Pool pool = Make("scoped");
  pool.reserve(MiB(4)).or_throw();
  pool.sleep().or_throw();
  const PoolScope scope(pool);
  const auto refused = allocate(KiB(64), nullptr, 0);
  ExpectFailure(refused.status(), StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  pool.wake().or_throw();
  EXPECT_TRUE(allocate(KiB(64), nullptr, 0).ok());
}

TEST(KeptAbi, IsReadAsleepAndRetained) {
  Pool pool = Make("keeper");
  Buffer block = pool.allocate(MiB(8), nullptr).value();
  pool.sleep({.kept_in = KeptIn::kPageable}).or_throw();
  const void* const place = pool.kept(block.data(), MiB(8)).value();
  EXPECT_NE(place, nullptr);
  pool.wake(LiveGraphs::kRefused, Retain::kCopies).or_throw();
  EXPECT_EQ(pool.kept(block.data(), MiB(8)).value(), place);
  ExpectFailure(pool.kept(block.data(), MiB(9)).status(), StatusCode::kNotFound, "has kept no 9 MiB");
}

const std::vector<const void*> kNoBlocks;  // none at all

TEST(KeptAbi, SeveralPoolsKeepWhatIsNamedInAnyOfThem) {
  Pool first = Make("keeper");
  Pool second = Make("keeper");
  Buffer named = first.allocate(MiB(4), nullptr).value();
  Buffer other = second.allocate(MiB(4), nullptr).value();
  const commpool_pool both[] = {first.handle(), second.handle()};
  const void* const blocks[] = {named.data()};
  auto c_options = Initialised(commpool_sleep_options_init);
  c_options.blocks = blocks;
  c_options.block_count = 1;
  ExpectOk(commpool_pools_sleep_keeping(both, 2, &c_options));
  EXPECT_EQ(first.stats().value().kept_bytes, MiB(4));
  EXPECT_EQ(second.stats().value().kept_bytes, 0u);
  ExpectOk(commpool_pools_wake(both, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE));
  first.sleep({.blocks = kNoBlocks}).or_throw();
  EXPECT_EQ(first.stats().value().kept_bytes, 0u);
}

TEST(KeptAbi, RefusesOptionsThatExcludeEachOther) {
  Pool pool = Make("keeper");
  const auto refused = [&](const SleepOptions& options, const char* part) {
    ExpectFailure(pool.sleep(options), StatusCode::kInvalidArgument, part);
    EXPECT_EQ(pool.stats().value().asleep_bytes, 0u);
  };
  pool.reserve(MiB(4)).or_throw();
  int anything = 0;
  const std::vector<const void*> no_block = {&anything};
  refused({.kept_in = KeptIn::kFiles}, "FILES needs a directory");
  refused({.kept_in = KeptIn::kFiles, .directory = "/tmp", .retain = true}, "files are not retained");
  refused({.directory = "/tmp"}, "directory is for kept_in FILES");
  refused({.keep = Keep::kDiscard, .blocks = kNoBlocks}, "keep DISCARD keeps nothing");
  refused({.keep = Keep::kDiscard, .retain = true}, "keep DISCARD keeps nothing");
  refused({.keep = Keep::kDiscard, .constants = no_block}, "keep DISCARD keeps nothing");
  refused({.constants = no_block}, "set retain");
  refused({.retain = true, .constants = no_block}, "constants 0");
  refused({.blocks = no_block}, "blocks 0");
}

TEST(KeptAbi, RefusesWhatItDoesNotKnow) {
  Pool pool = Make("keeper");
  const commpool_pool handle = pool.handle();
  EXPECT_EQ(commpool_pools_sleep_keeping(&handle, 1, nullptr), COMMPOOL_INVALID_ARGUMENT);
  auto options = Initialised(commpool_sleep_options_init);
  commpool_sleep_options_init(nullptr);
  options.kept_in = As<commpool_kept_in>(3);
  ExpectInvalid(commpool_pools_sleep_keeping(&handle, 1, &options), "kept_in 3 is none of PINNED, PAGEABLE, FILES");
  options.struct_bytes = 8;
  ExpectInvalid(commpool_pools_sleep_keeping(&handle, 1, &options), "struct_bytes is 8");
  EXPECT_EQ(commpool_pool_kept(handle, &options, 1, nullptr), COMMPOOL_INVALID_ARGUMENT);
  const void* kept = nullptr;
  EXPECT_EQ(commpool_pool_kept(handle, &options, 1, &kept), COMMPOOL_FAILED_PRECONDITION);
  EXPECT_EQ(commpool_pool_kept(0, &options, 1, &kept), COMMPOOL_NOT_FOUND);
  ExpectInvalid(commpool_pools_wake(&handle, 1, COMMPOOL_GRAPHS_REFUSED, As<commpool_retain>(3)),
                "retain 3 is none of");
}

}  // namespace
}  // namespace commpool::internal::testing
