// Pools that sleep and wake, through the C ABI and the C++ skin: values and figures.
#include <gtest/gtest.h>

#include <string>

#include "commpool/pool.h"
#include "commpool/scope.h"

namespace {

using commpool::Buffer;
using commpool::KiB;
using commpool::MiB;
using commpool::Pool;

void Expect(commpool_status status, commpool_status expected, const char* part) {
  EXPECT_EQ(status, expected) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
}

Pool Make(const char* name) {
  commpool::PoolOptions options;
  options.name = name;
  return Pool::create(options).value();
}

// Hides a number from the compiler.
template <typename Enum>
Enum As(int number) {
  return static_cast<Enum>(number);
}

uint64_t Asleep(const Pool& pool) { return pool.stats().value().asleep_bytes; }

TEST(SleepAbi, TellsSleepAndKeptBytes) {
  Pool pool = Make("weights");
  Buffer block = pool.allocate(MiB(8), nullptr).value();
  pool.sleep(commpool::Keep::kHost).or_throw();
  EXPECT_EQ(Asleep(pool), pool.stats().value().reserved_bytes.current);
  EXPECT_EQ(pool.stats().value().kept_bytes, MiB(8));
  EXPECT_EQ(pool.allocate(KiB(1), nullptr).status().code(), commpool::StatusCode::kFailedPrecondition);
  pool.wake().or_throw();
  EXPECT_EQ(Asleep(pool), 0u);
}

TEST(SleepAbi, RefusesUnknownValues) {
  Pool pool = Make("pool");
  Expect(commpool_pool_sleep(pool.handle(), As<commpool_keep>(7), COMMPOOL_GRAPHS_REFUSED), COMMPOOL_INVALID_ARGUMENT,
         "keep 7 is none of DISCARD, HOST");
  Expect(commpool_pool_sleep(pool.handle(), COMMPOOL_KEEP_DISCARD, As<commpool_graphs>(7)), COMMPOOL_INVALID_ARGUMENT,
         "graphs 7 is none of REFUSED, NO_COLLECTIVES");
  Expect(commpool_pool_wake(pool.handle(), COMMPOOL_GRAPHS_REFUSED), COMMPOOL_FAILED_PRECONDITION, "it is not asleep");
  const commpool_pool handle = pool.handle();
  Expect(commpool_pools_wake(&handle, 1, As<commpool_graphs>(7), COMMPOOL_RETAIN_AS_BEFORE), COMMPOOL_INVALID_ARGUMENT,
         "graphs 7 is none of REFUSED, NO_COLLECTIVES, DISCARDED");
  Expect(commpool_pools_wake(nullptr, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE), COMMPOOL_INVALID_ARGUMENT,
         "pools is null");
}

TEST(SleepAbi, EverySleepWithoutAWordKeeps) {
  Pool pool = Make("kept");
  const commpool::Buffer block = pool.allocate(MiB(1), nullptr).value();
  const auto kept = [&] {
    const uint64_t bytes = pool.stats().value().kept_bytes;
    pool.wake().or_throw();
    return bytes;
  };
  pool.sleep().or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep({}).or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep(commpool::SleepOptions{}).or_throw();
  EXPECT_EQ(kept(), MiB(1));
  pool.sleep(commpool::Keep::kDiscard).or_throw();
  EXPECT_EQ(kept(), 0u);
}

// Of one without ranks beside others, and on another device: nobody sleeps where one cannot.
TEST(SleepAbi, SeveralPoolsSleepAndWakeAllOrNone) {
  commpool::PoolOptions options;
  options.device = 1;
  if (!Pool::create(options).ok()) options.device = 0;  // a machine with one GPU
  Pool first = Pool::create(options).value();
  Pool last = Make("last");
  options.name = "cannot";
  options.backing = commpool::Backing::kCuda;
  Pool cannot = Pool::create(options).value();
  for (Pool* pool : {&first, &last}) pool->reserve(MiB(4)).or_throw();
  const commpool_pool with_one_that_cannot[] = {first.handle(), cannot.handle(), last.handle()};
  Expect(commpool_pools_sleep(with_one_that_cannot, 3, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED),
         COMMPOOL_NOT_SUPPORTED, "sleep: memory of the cuda backing");
  for (const Pool* pool : {&first, &last}) EXPECT_EQ(Asleep(*pool), 0u);
  Buffer block = last.allocate(MiB(1), nullptr).value();  // they serve

  const commpool_pool both[] = {first.handle(), last.handle()};
  Expect(commpool_pools_sleep(both, 2, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED), COMMPOOL_OK, "");
  for (const Pool* pool : {&first, &last}) EXPECT_GT(Asleep(*pool), 0u);
  Expect(commpool_pools_wake(with_one_that_cannot, 3, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE),
         COMMPOOL_FAILED_PRECONDITION, "wake: it is not asleep");
  for (const Pool* pool : {&first, &last}) EXPECT_GT(Asleep(*pool), 0u);
  Expect(commpool_pools_wake(both, 2, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE), COMMPOOL_OK, "");
  for (const Pool* pool : {&first, &last}) EXPECT_EQ(Asleep(*pool), 0u);
}

TEST(SleepAbi, AScopeRoutesToAPoolThatSleepsAndItsAllocationsFail) {
  Pool pool = Make("scoped");
  pool.reserve(MiB(4)).or_throw();
  pool.sleep().or_throw();
  {
    commpool::PoolScope scope(pool);
    const auto refused = commpool::allocate(KiB(64), nullptr, 0);
    EXPECT_EQ(refused.status().code(), commpool::StatusCode::kFailedPrecondition);
    EXPECT_NE(refused.status().message().find("is asleep: wake() it first"), std::string::npos)
        << refused.status().message();
    pool.wake().or_throw();
    EXPECT_TRUE(commpool::allocate(KiB(64), nullptr, 0).ok());
  }
}

}  // namespace
