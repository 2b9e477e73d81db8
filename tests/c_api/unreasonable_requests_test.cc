// Impossible requests are refused at once, with a message, before any pool releases memory for them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool {
namespace {

constexpr uint64_t kTebibyte = uint64_t{1} << 40;

class UnreasonableRequests : public internal::testing::DriverTest {
 protected:
  UnreasonableRequests() { AllowLeak(""); }  // the default pool's, which lives as long as the process

  static uint64_t ReservedBytes(const Pool& pool) { return pool.stats().value().reserved_bytes.current; }
};

void ExpectRefused(const Status& status, StatusCode code, const char* sentence) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
}

TEST_F(UnreasonableRequests, ToEndADefaultPool) {
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_default_pool(0, &pool), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_close(pool), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("the library's"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_TRUE(allocate(4096, nullptr, 0).ok()) << "it serves on";
}

// A count that a program forgot to set: the call asks the host for nothing of that size.
TEST_F(UnreasonableRequests, ForMorePoolsThanAnyProgramHas) {
  const Pool pool = Pool::create({}).value();
  const commpool_pool handle = pool.handle();
  uint64_t bytes = 7;
  for (const size_t count : {size_t{65537}, SIZE_MAX}) {
    EXPECT_EQ(commpool_pools_trim(&handle, count, 0, &bytes), COMMPOOL_INVALID_ARGUMENT) << count;
    EXPECT_EQ(commpool_pools_reclaim(&handle, count, &bytes), COMMPOOL_INVALID_ARGUMENT) << count;
    EXPECT_EQ(commpool_pools_close(&handle, count), COMMPOOL_INVALID_ARGUMENT) << count;
    EXPECT_NE(std::string(commpool_last_error()).find("more pools than one call takes"), std::string::npos);
  }
  EXPECT_EQ(bytes, 7u);
}

TEST_F(UnreasonableRequests, ToAScopeOfADestroyedPool) {
  commpool_scope scope = 0;
  {
    const Pool pool = Pool::create({}).value();
    ASSERT_EQ(commpool_scope_begin(pool.handle(), nullptr, &scope), COMMPOOL_OK);
  }
  const std::string name = "scope " + std::to_string(scope);
  ExpectRefused(allocate(4096, nullptr, 0).status(), StatusCode::kFailedPrecondition, name.c_str());
  EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK);
}

// Whatever this thread has begun and cached before.
TEST_F(UnreasonableRequests, ToPoolZero) {
  Pool pool = Pool::create({}).value();
  commpool_scope scope = 0;
  ASSERT_EQ(commpool_scope_begin(pool.handle(), nullptr, &scope), COMMPOOL_OK);
  void* block = nullptr;
  ASSERT_EQ(commpool_allocate(0, 4096, nullptr, &block), COMMPOOL_OK);
  EXPECT_EQ(commpool_free(block), COMMPOOL_OK);
  EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK);
  ASSERT_TRUE(allocate(4096, nullptr, 0).ok());
  EXPECT_EQ(commpool_scope_begin(0, nullptr, &scope), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_allocate(0, 4096, nullptr, &block), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_reserve(0, 4096), COMMPOOL_NOT_FOUND);
  EXPECT_EQ(commpool_pool_destroy(0), COMMPOOL_NOT_FOUND);
}

TEST_F(UnreasonableRequests, ForMoreThanTheDeviceHasGiveNothingBack) {
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    PoolOptions options;
    options.mode = mode;
    Pool pool = Pool::create(options).value();
    Pool other = Pool::create({}).value();
    ASSERT_TRUE(pool.reserve(MiB(64)).ok() && other.reserve(MiB(64)).ok());
    const uint64_t reserved = ReservedBytes(pool);
    ExpectRefused(pool.allocate(kTebibyte, nullptr).status(), StatusCode::kOutOfMemory, "in all");
    ExpectRefused(pool.reserve(kTebibyte), StatusCode::kOutOfMemory, "in all");
    EXPECT_EQ(ReservedBytes(pool), reserved);
    EXPECT_EQ(ReservedBytes(other), MiB(64));
  }
}

TEST_F(UnreasonableRequests, ForMoreThanTheDevicesLimitGiveNothingBack) {
  Pool pool = Pool::create({}).value();
  Pool other = Pool::create({}).value();
  ASSERT_TRUE(other.reserve(MiB(64)).ok());
  ASSERT_EQ(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, MiB(512)), COMMPOOL_OK);
  EXPECT_EQ(pool.allocate(GiB(1), nullptr).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(pool.reserve(GiB(1)).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(ReservedBytes(other), MiB(64));
  EXPECT_EQ(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX), COMMPOOL_OK);
}

TEST_F(UnreasonableRequests, ForMoreThanThePoolsLimitGiveNothingBack) {
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    PoolOptions options;
    options.mode = mode;
    options.limit_bytes = MiB(64);
    Pool pool = Pool::create(options).value();
    ASSERT_TRUE(pool.reserve(MiB(16)).ok());
    const uint64_t reserved = ReservedBytes(pool);
    ExpectRefused(pool.allocate(MiB(65), nullptr).status(), StatusCode::kOutOfMemory, "raise the limit");
    ExpectRefused(pool.reserve(MiB(65)), StatusCode::kOutOfMemory, "never fit its limit of 64 MiB");
    EXPECT_EQ(ReservedBytes(pool), reserved);
  }
}

TEST_F(UnreasonableRequests, ForSizesBeyondADevicesAddresses) {
  PoolOptions options;
  options.segment_bytes = uint64_t{1} << 50;
  ExpectRefused(Pool::create(options).status(), StatusCode::kInvalidArgument, "segment_bytes");
  options = {};
  options.granularity_bytes = uint64_t{1} << 50;
  ExpectRefused(Pool::create(options).status(), StatusCode::kInvalidArgument, "granularity_bytes");
}

TEST_F(UnreasonableRequests, ForMorePeersThanDevices) {
  PoolOptions options;
  options.peers = std::vector<int>(static_cast<size_t>(internal::testing::DeviceCountOfTests()) + 1, 1);
  ExpectRefused(Pool::create(options).status(), StatusCode::kInvalidArgument, "peers");
  commpool_pool_options c_options;
  commpool_pool_options_init(&c_options);
  const int peer = 0;
  c_options.peers = &peer;
  c_options.peer_count = SIZE_MAX / 8;
  commpool_pool pool = 0;
  EXPECT_EQ(commpool_pool_create(&c_options, &pool), COMMPOOL_INVALID_ARGUMENT) << "the array is not read so far";
}

TEST_F(UnreasonableRequests, ForTheLongestDeadlineMeanALongOne) {
  for (const uint64_t deadline_ms : {UINT64_MAX, uint64_t{INT64_MAX}, UINT64_MAX / 1000000}) {
    PoolOptions options;
    options.deadline_ms = deadline_ms;
    Pool pool = Pool::create(options).value();
    ASSERT_TRUE(pool.reserve(MiB(2)).ok());
    EXPECT_TRUE(pool.trim(0).ok()) << commpool_last_error();
    EXPECT_TRUE(pool.close().ok()) << commpool_last_error();
  }
}

TEST_F(UnreasonableRequests, ForMoreDevicesThanAnyMachineHas) {
  const Pool pool = Pool::create({}).value();
  const int device = 0;
  for (const auto access : {COMMPOOL_ACCESS_GRANTED, COMMPOOL_ACCESS_REVOKED}) {
    for (const size_t count : {size_t{1025}, size_t{1} << 62, SIZE_MAX}) {
      EXPECT_EQ(commpool_pool_set_access(pool.handle(), &device, count, access), COMMPOOL_INVALID_ARGUMENT) << count;
      EXPECT_NE(std::string(commpool_last_error()).find("more devices than any machine has"), std::string::npos);
    }
  }
}

TEST_F(UnreasonableRequests, ByANameForgeNoLine) {
  PoolOptions options;
  options.name = "a\nb \"c\"" + std::string(10000, 'x');
  Pool pool = Pool::create(options).value();
  const Status refused = pool.reserve(0);
  EXPECT_EQ(refused.message().find('\n'), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("a\\nb \\\"c\\\"xxx"), std::string::npos) << refused.message();
  EXPECT_LT(refused.message().size(), 300u);
}

}  // namespace
}  // namespace commpool
