// The C ABI as a program sees it: null outputs, invalid handles, sizes, and the message of the last error; and programs
// that were compiled against another minor version.
#include "tests/c_api/c_abi.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <thread>

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kNoPool = 987654;

class CAbi : public ::testing::Test {
 protected:
  const OwnedPool pool_{Named("abi")};
};

TEST_F(CAbi, NullOutputsAreRefused) {
  auto options = Initialised(commpool_pool_options_init);
  commpool_pool pool = 7;
  uint64_t offset = 0;
  ncclWindow_vidmem* window = nullptr;
  ExpectInvalid(commpool_pool_create(nullptr, &pool), "null");
  ExpectInvalid(commpool_pool_create(&options, nullptr), "null");
  ExpectInvalid(commpool_default_pool(0, nullptr), "null");
  ExpectInvalid(commpool_allocate(0, 1, nullptr, nullptr), "null");
  ExpectInvalid(commpool_pool_allocate(pool_, 1, nullptr, nullptr), "null");
  ExpectInvalid(commpool_scope_begin(pool_, nullptr, nullptr), "null");
  ExpectInvalid(commpool_window_of(nullptr, nullptr, nullptr, &offset), "null");
  ExpectInvalid(commpool_window_of(nullptr, nullptr, &window, nullptr), "null");
  ExpectInvalid(commpool_nvls_eligible(nullptr, 1, nullptr, nullptr, nullptr), "null");
  ExpectInvalid(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, nullptr), "null");
  commpool_plain_allocate plain_allocate = nullptr;
  commpool_plain_free plain_free = nullptr;
  ExpectInvalid(commpool_pool_functions(pool_, nullptr, &plain_free), "null");
  ExpectInvalid(commpool_pool_functions(pool_, &plain_allocate, nullptr), "null");
  ExpectInvalid(commpool_pool_set_access(pool_, nullptr, 1, COMMPOOL_ACCESS_GRANTED), "null");
  ExpectInvalid(commpool_pool_set_access(pool_, nullptr, 1, COMMPOOL_ACCESS_REVOKED), "null");
  EXPECT_EQ(pool, 7u) << "outputs are not written";
  commpool_pool_options_init(nullptr);
  commpool_scope_options_init(nullptr);
  commpool_statistics_init(nullptr);
}

TEST_F(CAbi, NullCountsAreAllowed) {
  ExpectOk(commpool_pool_trim(pool_, 0, nullptr));
  ExpectOk(commpool_pool_reclaim(pool_, nullptr));
  EXPECT_EQ(commpool_pool_verify(pool_), COMMPOOL_OK) << "there is no other rank";
  ExpectOk(commpool_pool_register_pending(pool_, nullptr));
  ExpectOk(commpool_pool_set_access(pool_, nullptr, 0, COMMPOOL_ACCESS_GRANTED));
  ExpectOk(commpool_pool_set_access(pool_, nullptr, 0, COMMPOOL_ACCESS_REVOKED));
  Free(nullptr);
}

TEST_F(CAbi, UnknownHandlesAreNotFound) {
  auto statistics = Initialised(commpool_statistics_init);
  commpool_plain_allocate plain_allocate = nullptr;
  commpool_plain_free plain_free = nullptr;
  void* pointer = &statistics;
  commpool_scope scope = 7;
  const int device = 1;
  int lost_rank = 5;
  for (const commpool_pool handle : {commpool_pool{0}, commpool_pool{kNoPool}}) {
    const std::string name = "pool " + std::to_string(handle);
    ExpectNotFound(commpool_pool_destroy(handle), name);
    ExpectNotFound(commpool_pool_close(handle), name);
    ExpectNotFound(commpool_pool_reserve(handle, 1), name);
    ExpectNotFound(commpool_pool_reclaim(handle, nullptr), name);
    ExpectNotFound(commpool_pool_trim(handle, 0, nullptr), name);
    ExpectNotFound(commpool_pool_verify(handle), name);
    ExpectNotFound(commpool_pool_allocate(handle, 1, nullptr, &pointer), name);
    ExpectNotFound(commpool_scope_begin(handle, nullptr, &scope), name);
    ExpectNotFound(commpool_pool_set_access(handle, &device, 1, COMMPOOL_ACCESS_GRANTED), name);
    ExpectNotFound(commpool_pool_set_access(handle, &device, 1, COMMPOOL_ACCESS_REVOKED), name);
    ExpectNotFound(commpool_pool_register_with(handle, nullptr), name);
    ExpectNotFound(commpool_pool_register_pending(handle, nullptr), name);
    ExpectNotFound(commpool_pool_deregister(handle, nullptr), name);
    ExpectNotFound(commpool_pool_abandon(handle, nullptr, COMMPOOL_LIFE_ENDED), name);
    ExpectNotFound(commpool_pool_abandon(handle, nullptr, COMMPOOL_LIFE_ALIVE), name);
    ExpectNotFound(commpool_pool_rehome(handle, nullptr), name);
    ExpectNotFound(commpool_pool_lost_rank(handle, &lost_rank), name);
    ExpectNotFound(commpool_pool_statistics(handle, COMMPOOL_PEAKS_STAY, &statistics), name);
    ExpectNotFound(commpool_pool_functions(handle, &plain_allocate, &plain_free), name);
  }
  EXPECT_EQ(pointer, &statistics) << "outputs are not written";
  EXPECT_EQ(plain_allocate, nullptr);
  EXPECT_EQ(scope, 7u);
  EXPECT_EQ(lost_rank, 5);
  ExpectNotFound(commpool_scope_end(0), "scope 0");
  ExpectNotFound(commpool_scope_end(kNoPool), "scope 987654");
}

TEST_F(CAbi, StructsThatWereNotInitialisedAreRefused) {
  commpool_pool_options options = {};
  commpool_scope_options scope_options = {};
  commpool_statistics statistics = {};
  commpool_pool pool = 0;
  commpool_scope scope = 0;
  ExpectInvalid(commpool_pool_create(&options, &pool), "commpool_pool_options_init");
  ExpectInvalid(commpool_scope_begin(pool_, &scope_options, &scope), "commpool_scope_options_init");
  ExpectInvalid(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), "struct_bytes");
}

TEST_F(CAbi, UnknownScopeOptionsAreRefused) {
  commpool_scope scope = 7;
  auto options = Initialised(commpool_scope_options_init);
  options.struct_bytes = 8;
  ExpectInvalid(commpool_scope_begin(pool_, &options, &scope), "commpool_scope_options_init");
  commpool_scope_options_init(&options);
  options.filter = As<commpool_filter>(3);
  ExpectInvalid(commpool_scope_begin(pool_, &options, &scope), "filter 3");
  commpool_scope_options_init(&options);
  options.exhaustion = As<commpool_exhaustion>(2);
  ExpectInvalid(commpool_scope_begin(pool_, &options, &scope), "exhaustion 2");
  commpool_scope_options_init(&options);
  options.min_bytes = 4096;
  options.max_bytes = 4095;
  ExpectInvalid(commpool_scope_begin(pool_, &options, &scope), "4096 bytes, is above its most, 4095");
  EXPECT_EQ(scope, 7u) << "outputs are not written";
}

TEST_F(CAbi, PointersThatAreNoBlocksAreNotFound) {
  int on_the_stack = 0;
  ExpectNotFound(commpool_free(&on_the_stack), "lies in no pool");
  ExpectNotFound(commpool_record_stream(&on_the_stack, nullptr), "lies in no pool");
  ExpectNotFound(commpool_record_stream(nullptr, nullptr), "0x0");
  void* const pointer = Allocate(pool_, 4096);
  ExpectNotFound(commpool_free(static_cast<char*>(pointer) + 1), "inside a live block");
  Free(pointer);
  ExpectNotFound(commpool_free(pointer), "freed already");
}

TEST_F(CAbi, NvlsIsAskedAboutPoolsMemoryAndCommunicators) {
  int eligible = 7;
  const char* reason = nullptr;
  ExpectNotFound(commpool_nvls_eligible(&eligible, 1, nullptr, &eligible, &reason), "lies in no pool");
  void* const pointer = Allocate(pool_, 4096);
  ExpectInvalid(commpool_nvls_eligible(pointer, 0, nullptr, &eligible, &reason), "0 bytes");
  ExpectInvalid(commpool_nvls_eligible(pointer, 1, nullptr, &eligible, nullptr), "null");
  EXPECT_EQ(eligible, 7) << "outputs are not written";
  EXPECT_EQ(reason, nullptr);
  Free(pointer);
}

TEST_F(CAbi, ZeroAndHugeSizesAreRefused) {
  void* pointer = nullptr;
  ExpectInvalid(commpool_pool_allocate(pool_, 0, nullptr, &pointer), "0 bytes");
  ExpectInvalid(commpool_allocate(0, 0, nullptr, &pointer), "0 bytes");
  ExpectInvalid(commpool_pool_allocate(pool_, UINT64_MAX, nullptr, &pointer), "64 bits");
  ExpectFailure(commpool_pool_allocate(pool_, uint64_t{1} << 50, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "abi");
  ExpectInvalid(commpool_pool_reserve(pool_, 0), "0 bytes");
  ExpectInvalid(commpool_pool_reserve(pool_, UINT64_MAX), "64 bits");
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(StatisticsOf(pool_).failed_allocations, 3u);
}

TEST_F(CAbi, MissingDevicesAreRefused) {
  void* pointer = nullptr;
  commpool_pool pool = 0;
  ExpectInvalid(commpool_allocate(99, 1, nullptr, &pointer), "99");
  ExpectInvalid(commpool_allocate(-2, 1, nullptr, &pointer), "-2");
  ExpectInvalid(commpool_default_pool(99, &pool), "99");
  ExpectInvalid(commpool_default_pool(-1, &pool), "-1");
}

TEST_F(CAbi, TheDefaultPoolStays) { ExpectInvalid(commpool_pool_destroy(DefaultPool()), "default pool of device 0"); }

TEST_F(CAbi, DefaultStreamsAreNotReleased) { ExpectInvalid(commpool_release_stream(nullptr), "default stream"); }

TEST_F(CAbi, NullCommunicatorsAreRefusedByAFixedPool) {
  EXPECT_NE(commpool_pool_register_with(pool_, nullptr), COMMPOOL_OK);
  EXPECT_NE(std::string(commpool_last_error()), "");
  EXPECT_EQ(commpool_pool_deregister(pool_, nullptr), COMMPOOL_OK) << "it never was registered";
  ExpectOk(commpool_pool_abandon(pool_, nullptr, COMMPOOL_LIFE_ENDED));
  ExpectOk(commpool_pool_abandon(pool_, nullptr, COMMPOOL_LIFE_ALIVE));
  ExpectFailure(commpool_pool_rehome(pool_, nullptr), COMMPOOL_NOT_SUPPORTED, "is not symmetric and has no home");
}

TEST_F(CAbi, AFixedPoolHasNoRankToLose) {
  int rank = 5;
  ExpectOk(commpool_pool_lost_rank(pool_, &rank));
  EXPECT_EQ(rank, -1);
  ExpectInvalid(commpool_pool_lost_rank(pool_, nullptr), "null");
}

TEST_F(CAbi, TheLastErrorIsTheThreadsOwn) {
  ExpectNotFound(commpool_pool_close(kNoPool), "987654");
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = commpool_last_error(); }).join();
  EXPECT_EQ(elsewhere, "") << "a thread without a failure has no sentence";
  Free(nullptr);
  EXPECT_NE(std::string(commpool_last_error()).find("987654"), std::string::npos) << "success keeps it";
}

TEST_F(CAbi, TheLibrarySaysItsVersion) { EXPECT_EQ(commpool_version(), COMMPOOL_VERSION); }

TEST_F(CAbi, TheDriverIsOpenedOnce) {
  ExpectOk(commpool_initialize(COMMPOOL_DRIVER_EMULATED, COMMPOOL_MEASURE_NOTHING));
  ExpectOk(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING));
  EXPECT_NE(std::string(commpool_driver_description()), "");
}

commpool_pool_options OfUser(commpool_user_allocate allocate) {
  auto options = Initialised(commpool_pool_options_init);
  options.backing = COMMPOOL_BACKING_USER;
  options.user_allocate = allocate;
  options.user_free = [](void*, ptrdiff_t, int, CUstream_st*, void*) {};
  return options;
}

TEST_F(CAbi, AUsersFunctionsMakeAPoolsMemoryAndTheirRefusalIsOutOfMemory) {
  auto options = Initialised(commpool_pool_options_init);
  options.backing = COMMPOOL_BACKING_USER;
  commpool_pool pool = 0;
  ExpectInvalid(commpool_pool_create(&options, &pool), "user");
  const OwnedPool refusing(OfUser([](ptrdiff_t, int, CUstream_st*, void*) -> void* { return nullptr; }));
  void* pointer = nullptr;
  EXPECT_EQ(commpool_pool_allocate(refusing, 1, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY) << commpool_last_error();
}

TEST_F(CAbi, ExceptionsOfAUsersFunctionsDoNotPass) {
  const OwnedPool pool(
      OfUser([](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw std::runtime_error("thrown"); }));
  void* pointer = nullptr;
  ExpectInvalid(commpool_pool_allocate(pool, 1, nullptr, &pointer), "thrown");
  ExpectInvalid(commpool_pool_reserve(pool, 1), "thrown");  // no lock stayed locked
}

void ExpectVersion(commpool_status status, const char* what) {
  const std::string version = "commpool " + std::to_string(COMMPOOL_VERSION_MAJOR) + "." +
                              std::to_string(COMMPOOL_VERSION_MINOR) + "." + std::to_string(COMMPOOL_VERSION_PATCH);
  for (const std::string& part : {std::string(what), version, std::string("build the program with this version")}) {
    ExpectInvalid(status, part);
  }
}

// Programs that were compiled against another minor version's commpool.h, with other struct sizes, get a message, and
// nothing is written. (The loader's refusal: tests/house/exported_symbols_test.py.)
class AProgramOfAnotherMinorVersion : public ::testing::TestWithParam<int> {
 protected:
  // The size of another version's struct.
  size_t Other(size_t bytes) const { return bytes + static_cast<size_t>(GetParam()); }

  const commpool_pool pool_ = DefaultPool();
};

TEST_P(AProgramOfAnotherMinorVersion, MakesNoPool) {
  std::array<commpool_pool_options, 2> options;
  for (commpool_pool_options& each : options) commpool_pool_options_init(&each);
  std::array<commpool_pool, 2> pools = {7, 7};
  options[1].struct_bytes = Other(sizeof(options[1]));
  ExpectVersion(commpool_pools_create(options.data(), 2, pools.data()), "pool options: struct_bytes");
  options[0].struct_bytes = Other(sizeof(options[0]));
  ExpectVersion(commpool_pools_create(options.data(), 2, pools.data()), "pool options: struct_bytes");
  ExpectVersion(commpool_pool_create(options.data(), pools.data()), "pool options: struct_bytes");
  EXPECT_EQ(pools, (std::array<commpool_pool, 2>{7, 7})) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, BeginsNoScope) {
  auto options = Initialised(commpool_scope_options_init);
  options.struct_bytes = Other(sizeof(options));
  commpool_scope scope = 7;
  ExpectVersion(commpool_scope_begin(pool_, &options, &scope), "scope options: struct_bytes");
  EXPECT_EQ(scope, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, AddsNoHolder) {
  auto options = Initialised(commpool_holder_options_init);
  options.struct_bytes = Other(sizeof(options));
  commpool_holder holder = 7;
  ExpectVersion(commpool_add_holder(&options, &holder), "holder options: struct_bytes");
  EXPECT_EQ(holder, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, ReadsNoStatistics) {
  auto statistics = Initialised(commpool_statistics_init);
  statistics.struct_bytes = Other(sizeof(statistics));
  statistics.kept_bytes = 7;
  ExpectVersion(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), "statistics: struct_bytes");
  EXPECT_EQ(statistics.kept_bytes, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, ListsNothing) {
  commpool_block block = {};
  commpool_setting setting = {};
  commpool_driver_call call = {};
  size_t count = 7;
  void* const pointer = Allocate(pool_, 512);
  const char* const what = "entry_bytes";
  ExpectVersion(commpool_block_of(pointer, &block, Other(sizeof(block))), what);
  ExpectVersion(commpool_pool_blocks(pool_, &block, Other(sizeof(block)), 1, &count), what);
  ExpectVersion(commpool_configuration(pool_, &setting, Other(sizeof(setting)), 1, &count), what);
  ExpectVersion(commpool_configuration(0, &setting, Other(sizeof(setting)), 1, &count), what);
  ExpectVersion(commpool_driver_calls(&call, Other(sizeof(call)), 1, &count), what);
  EXPECT_EQ(count, 7u) << "outputs are not written";
  EXPECT_EQ(block.pointer, nullptr);
  Free(pointer);
}

INSTANTIATE_TEST_SUITE_P(OlderAndNewer, AProgramOfAnotherMinorVersion, ::testing::Values(-8, 8));

}  // namespace
}  // namespace commpool::internal::testing
