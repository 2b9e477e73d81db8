// Impossible requests are refused at once, with a message, before any pool releases memory for them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kTebibyte = uint64_t{1} << 40;

class UnreasonableRequests : public DriverTest {
 protected:
  UnreasonableRequests() { AllowLeak(""); }  // the default pool's, which lives as long as the process

  static uint64_t ReservedBytes(const Pool& pool) { return pool.stats().value().reserved_bytes.current; }
};

TEST_F(UnreasonableRequests, ToEndADefaultPool) {
  const commpool_pool pool = DefaultPool();
  ExpectInvalid(commpool_pool_close(pool), "the library's");
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_TRUE(allocate(4096, nullptr, 0).ok()) << "it serves on";
}

// A count that a program forgot to set: the call asks the host for nothing of that size.
TEST_F(UnreasonableRequests, ForMorePoolsThanAnyProgramHas) {
  const OwnedPool pool;
  const std::string why = "more pools than one call takes";
  uint64_t bytes = 7;
  for (const size_t count : {size_t{65537}, SIZE_MAX}) {
    SCOPED_TRACE(count);
    ExpectInvalid(commpool_pools_trim(&pool.handle, count, 0, &bytes), why);
    ExpectInvalid(commpool_pools_reclaim(&pool.handle, count, &bytes), why);
    ExpectInvalid(commpool_pools_close(&pool.handle, count), why);
  }
  EXPECT_EQ(bytes, 7u);
}

TEST_F(UnreasonableRequests, ToAScopeOfADestroyedPool) {
  const commpool_pool pool = MakePool();
  const OpenScope scope(pool);
  Destroy(pool);
  const std::string name = "scope " + std::to_string(scope.handle);
  ExpectFailure(allocate(4096, nullptr, 0).status(), StatusCode::kFailedPrecondition, name);
}

// Whatever this thread has begun and cached before.
TEST_F(UnreasonableRequests, ToPoolZero) {
  const OwnedPool pool;
  {
    const OpenScope scope(pool);
    Free(AllocateCaught(4096));
  }
  ASSERT_TRUE(allocate(4096, nullptr, 0).ok());
  commpool_scope scope = 0;
  void* block = nullptr;
  EXPECT_EQ(commpool_scope_begin(0, nullptr, &scope), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_allocate(0, 4096, nullptr, &block), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_reserve(0, 4096), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_destroy(0), COMMPOOL_NOT_FOUND);
}

TEST_F(UnreasonableRequests, ForMoreThanTheDeviceHasGiveNothingBack) {
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    Pool pool = Pool::create({.mode = mode}).value();
    Pool other = Pool::create({}).value();
    ASSERT_TRUE(pool.reserve(MiB(64)).ok() && other.reserve(MiB(64)).ok());
    const uint64_t reserved = ReservedBytes(pool);
    ExpectFailure(pool.allocate(kTebibyte, nullptr).status(), StatusCode::kOutOfMemory, "in all");
    ExpectFailure(pool.reserve(kTebibyte), StatusCode::kOutOfMemory, "in all");
    EXPECT_EQ(ReservedBytes(pool), reserved);
    EXPECT_EQ(ReservedBytes(other), MiB(64));
  }
}

TEST_F(UnreasonableRequests, ForMoreThanTheDevicesLimitGiveNothingBack) {
  Pool pool = Pool::create({}).value();
  Pool other = Pool::create({}).value();
  ASSERT_TRUE(other.reserve(MiB(64)).ok());
  ExpectOk(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, MiB(512)));
  EXPECT_EQ(pool.allocate(GiB(1), nullptr).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(pool.reserve(GiB(1)).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(ReservedBytes(other), MiB(64));
  ExpectOk(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX));
}

TEST_F(UnreasonableRequests, ForMoreThanThePoolsLimitGiveNothingBack) {
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    Pool pool = Pool::create({.mode = mode, .limit_bytes = MiB(64)}).value();
    ASSERT_TRUE(pool.reserve(MiB(16)).ok());
    const uint64_t reserved = ReservedBytes(pool);
    ExpectFailure(pool.allocate(MiB(65), nullptr).status(), StatusCode::kOutOfMemory, "raise the limit");
    ExpectFailure(pool.reserve(MiB(65)), StatusCode::kOutOfMemory, "never fit its limit of 64 MiB");
    EXPECT_EQ(ReservedBytes(pool), reserved);
  }
}

TEST_F(UnreasonableRequests, ForSizesBeyondADevicesAddresses) {
  constexpr uint64_t kTooMuch = uint64_t{1} << 50;
  ExpectFailure(Pool::create({.segment_bytes = kTooMuch}).status(), StatusCode::kInvalidArgument, "segment_bytes");
  ExpectFailure(Pool::create({.granularity_bytes = kTooMuch}).status(), StatusCode::kInvalidArgument,
                "granularity_bytes");
}

TEST_F(UnreasonableRequests, ForMorePeersThanDevices) {
  PoolOptions options;
  options.peers = std::vector<int>(static_cast<size_t>(DeviceCountOfTests()) + 1, 1);
  ExpectFailure(Pool::create(options).status(), StatusCode::kInvalidArgument, "peers");
  auto c_options = Initialised(commpool_pool_options_init);
  const int peer = 0;
  c_options.peers = &peer;
  c_options.peer_count = SIZE_MAX / 8;
  commpool_pool pool = 0;
  EXPECT_EQ(commpool_pool_create(&c_options, &pool), COMMPOOL_INVALID_ARGUMENT) << "the array is not read so far";
}

TEST_F(UnreasonableRequests, ForTheLongestDeadlineMeanALongOne) {
  for (const uint64_t deadline_ms : {UINT64_MAX, uint64_t{INT64_MAX}, UINT64_MAX / 1000000}) {
    Pool pool = Pool::create({.deadline_ms = deadline_ms}).value();
    ASSERT_TRUE(pool.reserve(MiB(2)).ok());
    EXPECT_TRUE(pool.trim(0).ok()) << commpool_last_error();
    EXPECT_TRUE(pool.close().ok()) << commpool_last_error();
  }
}

TEST_F(UnreasonableRequests, ForMoreDevicesThanAnyMachineHas) {
  const OwnedPool pool;
  const int device = 0;
  for (const auto access : {COMMPOOL_ACCESS_GRANTED, COMMPOOL_ACCESS_REVOKED}) {
    for (const size_t count : {size_t{1025}, size_t{1} << 62, SIZE_MAX}) {
      SCOPED_TRACE(count);
      ExpectInvalid(commpool_pool_set_access(pool, &device, count, access), "more devices than any machine has");
    }
  }
}

TEST_F(UnreasonableRequests, ByANameForgeNoLine) {
  Pool pool = Pool::create({.name = "a\nb \"c\"" + std::string(10000, 'x')}).value();
  const Status refused = pool.reserve(0);
  EXPECT_EQ(refused.message().find('\n'), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("a\\nb \\\"c\\\"xxx"), std::string::npos) << refused.message();
  EXPECT_LT(refused.message().size(), 300u);
}

}  // namespace
}  // namespace commpool::internal::testing
