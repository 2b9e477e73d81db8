// The C ABI as a program sees it: null outputs, invalid handles, sizes, and the message of the last error.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "commpool/commpool.h"

namespace {

constexpr uint64_t kNoPool = 987654;

class CAbi : public ::testing::Test {
 protected:
  CAbi() {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.name = "abi";
    EXPECT_EQ(commpool_pool_create(&options, &pool_), COMMPOOL_OK) << commpool_last_error();
  }
  ~CAbi() override { EXPECT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK) << commpool_last_error(); }

  static void Expect(commpool_status status, commpool_status expected, const char* part) {
    EXPECT_EQ(status, expected) << commpool_last_error();
    EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
  }
  commpool_statistics Statistics() {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    EXPECT_EQ(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), COMMPOOL_OK);
    return statistics;
  }

  commpool_pool pool_ = 0;
};

TEST_F(CAbi, NullOutputsAreRefused) {
  const commpool_status refused = COMMPOOL_INVALID_ARGUMENT;
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  commpool_pool pool = 7;
  uint64_t offset = 0;
  ncclWindow_vidmem* window = nullptr;
  Expect(commpool_pool_create(nullptr, &pool), refused, "null");
  Expect(commpool_pool_create(&options, nullptr), refused, "null");
  Expect(commpool_default_pool(0, nullptr), refused, "null");
  Expect(commpool_allocate(0, 1, nullptr, nullptr), refused, "null");
  Expect(commpool_pool_allocate(pool_, 1, nullptr, nullptr), refused, "null");
  Expect(commpool_scope_begin(pool_, nullptr, nullptr), refused, "null");
  Expect(commpool_window_of(nullptr, nullptr, nullptr, &offset), refused, "null");
  Expect(commpool_window_of(nullptr, nullptr, &window, nullptr), refused, "null");
  Expect(commpool_nvls_eligible(nullptr, 1, nullptr, nullptr, nullptr), refused, "null");
  Expect(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, nullptr), refused, "null");
  commpool_plain_allocate plain_allocate = nullptr;
  commpool_plain_free plain_free = nullptr;
  Expect(commpool_pool_functions(pool_, nullptr, &plain_free), refused, "null");
  Expect(commpool_pool_functions(pool_, &plain_allocate, nullptr), refused, "null");
  Expect(commpool_pool_set_access(pool_, nullptr, 1, COMMPOOL_ACCESS_GRANTED), refused, "null");
  Expect(commpool_pool_set_access(pool_, nullptr, 1, COMMPOOL_ACCESS_REVOKED), refused, "null");
  EXPECT_EQ(pool, 7u) << "outputs are not written";
  commpool_pool_options_init(nullptr);
  commpool_scope_options_init(nullptr);
  commpool_statistics_init(nullptr);
}

TEST_F(CAbi, NullCountsAreAllowed) {
  EXPECT_EQ(commpool_pool_trim(pool_, 0, nullptr), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_reclaim(pool_, nullptr), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_verify(pool_), COMMPOOL_OK) << "there is no other rank";
  EXPECT_EQ(commpool_pool_register_pending(pool_, nullptr), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_set_access(pool_, nullptr, 0, COMMPOOL_ACCESS_GRANTED), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_set_access(pool_, nullptr, 0, COMMPOOL_ACCESS_REVOKED), COMMPOOL_OK);
  EXPECT_EQ(commpool_free(nullptr), COMMPOOL_OK);
}

TEST_F(CAbi, UnknownHandlesAreNotFound) {
  const commpool_status none = COMMPOOL_NOT_FOUND;
  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  commpool_plain_allocate plain_allocate = nullptr;
  commpool_plain_free plain_free = nullptr;
  void* pointer = &statistics;
  commpool_scope scope = 7;
  const int device = 1;
  int lost_rank = 5;
  for (const commpool_pool handle : {commpool_pool{0}, commpool_pool{kNoPool}}) {
    const std::string name = "pool " + std::to_string(handle);
    Expect(commpool_pool_destroy(handle), none, name.c_str());
    Expect(commpool_pool_close(handle), none, name.c_str());
    Expect(commpool_pool_reserve(handle, 1), none, name.c_str());
    Expect(commpool_pool_reclaim(handle, nullptr), none, name.c_str());
    Expect(commpool_pool_trim(handle, 0, nullptr), none, name.c_str());
    Expect(commpool_pool_verify(handle), none, name.c_str());
    Expect(commpool_pool_allocate(handle, 1, nullptr, &pointer), none, name.c_str());
    Expect(commpool_scope_begin(handle, nullptr, &scope), none, name.c_str());
    Expect(commpool_pool_set_access(handle, &device, 1, COMMPOOL_ACCESS_GRANTED), none, name.c_str());
    Expect(commpool_pool_set_access(handle, &device, 1, COMMPOOL_ACCESS_REVOKED), none, name.c_str());
    Expect(commpool_pool_register_with(handle, nullptr), none, name.c_str());
    Expect(commpool_pool_register_pending(handle, nullptr), none, name.c_str());
    Expect(commpool_pool_deregister(handle, nullptr), none, name.c_str());
    Expect(commpool_pool_abandon(handle, nullptr, COMMPOOL_LIFE_ENDED), none, name.c_str());
    Expect(commpool_pool_abandon(handle, nullptr, COMMPOOL_LIFE_ALIVE), none, name.c_str());
    Expect(commpool_pool_rehome(handle, nullptr), none, name.c_str());
    Expect(commpool_pool_lost_rank(handle, &lost_rank), none, name.c_str());
    Expect(commpool_pool_statistics(handle, COMMPOOL_PEAKS_STAY, &statistics), none, name.c_str());
    Expect(commpool_pool_functions(handle, &plain_allocate, &plain_free), none, name.c_str());
  }
  EXPECT_EQ(pointer, &statistics) << "outputs are not written";
  EXPECT_EQ(plain_allocate, nullptr);
  EXPECT_EQ(scope, 7u);
  EXPECT_EQ(lost_rank, 5);
  Expect(commpool_scope_end(0), none, "scope 0");
  Expect(commpool_scope_end(kNoPool), none, "scope 987654");
}

TEST_F(CAbi, StructsThatWereNotInitialisedAreRefused) {
  commpool_pool_options options = {};
  commpool_scope_options scope_options = {};
  commpool_statistics statistics = {};
  commpool_pool pool = 0;
  commpool_scope scope = 0;
  Expect(commpool_pool_create(&options, &pool), COMMPOOL_INVALID_ARGUMENT, "commpool_pool_options_init");
  Expect(commpool_scope_begin(pool_, &scope_options, &scope), COMMPOOL_INVALID_ARGUMENT, "commpool_scope_options_init");
  Expect(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), COMMPOOL_INVALID_ARGUMENT, "struct_bytes");
}

TEST_F(CAbi, UnknownScopeOptionsAreRefused) {
  const commpool_status refused = COMMPOOL_INVALID_ARGUMENT;
  commpool_scope scope = 7;
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.struct_bytes = 8;
  Expect(commpool_scope_begin(pool_, &options, &scope), refused, "commpool_scope_options_init");
  commpool_scope_options_init(&options);
  options.filter = static_cast<commpool_filter>(3);
  Expect(commpool_scope_begin(pool_, &options, &scope), refused, "filter 3");
  commpool_scope_options_init(&options);
  const int unknown = 2;
  std::memcpy(&options.exhaustion, &unknown, sizeof(unknown));
  Expect(commpool_scope_begin(pool_, &options, &scope), refused, "exhaustion 2");
  commpool_scope_options_init(&options);
  options.min_bytes = 4096;
  options.max_bytes = 4095;
  Expect(commpool_scope_begin(pool_, &options, &scope), refused, "4096 bytes, is above its most, 4095");
  EXPECT_EQ(scope, 7u) << "outputs are not written";
}

TEST_F(CAbi, PointersThatAreNoBlocksAreNotFound) {
  int on_the_stack = 0;
  Expect(commpool_free(&on_the_stack), COMMPOOL_NOT_FOUND, "lies in no pool");
  Expect(commpool_record_stream(&on_the_stack, nullptr), COMMPOOL_NOT_FOUND, "lies in no pool");
  Expect(commpool_record_stream(nullptr, nullptr), COMMPOOL_NOT_FOUND, "0x0");
  void* pointer = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 4096, nullptr, &pointer), COMMPOOL_OK);
  Expect(commpool_free(static_cast<char*>(pointer) + 1), COMMPOOL_NOT_FOUND, "inside a live block");
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
  Expect(commpool_free(pointer), COMMPOOL_NOT_FOUND, "freed already");
}

TEST_F(CAbi, NvlsIsAskedAboutPoolsMemoryAndCommunicators) {
  int eligible = 7;
  const char* reason = nullptr;
  Expect(commpool_nvls_eligible(&eligible, 1, nullptr, &eligible, &reason), COMMPOOL_NOT_FOUND, "lies in no pool");
  void* pointer = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 4096, nullptr, &pointer), COMMPOOL_OK);
  Expect(commpool_nvls_eligible(pointer, 0, nullptr, &eligible, &reason), COMMPOOL_INVALID_ARGUMENT, "0 bytes");
  Expect(commpool_nvls_eligible(pointer, 1, nullptr, &eligible, nullptr), COMMPOOL_INVALID_ARGUMENT, "null");
  EXPECT_EQ(eligible, 7) << "outputs are not written";
  EXPECT_EQ(reason, nullptr);
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
}

TEST_F(CAbi, ZeroAndHugeSizesAreRefused) {
  void* pointer = nullptr;
  Expect(commpool_pool_allocate(pool_, 0, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "0 bytes");
  Expect(commpool_allocate(0, 0, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "0 bytes");
  Expect(commpool_pool_allocate(pool_, UINT64_MAX, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "64 bits");
  Expect(commpool_pool_allocate(pool_, uint64_t{1} << 50, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "abi");
  Expect(commpool_pool_reserve(pool_, 0), COMMPOOL_INVALID_ARGUMENT, "0 bytes");
  Expect(commpool_pool_reserve(pool_, UINT64_MAX), COMMPOOL_INVALID_ARGUMENT, "64 bits");
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(Statistics().failed_allocations, 3u);
}

TEST_F(CAbi, MissingDevicesAreRefused) {
  void* pointer = nullptr;
  commpool_pool pool = 0;
  Expect(commpool_allocate(99, 1, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "99");
  Expect(commpool_allocate(-2, 1, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "-2");
  Expect(commpool_default_pool(99, &pool), COMMPOOL_INVALID_ARGUMENT, "99");
  Expect(commpool_default_pool(-1, &pool), COMMPOOL_INVALID_ARGUMENT, "-1");
}

TEST_F(CAbi, TheDefaultPoolStays) {
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_default_pool(0, &pool), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_pool_destroy(pool), COMMPOOL_INVALID_ARGUMENT, "default pool of device 0");
}

TEST_F(CAbi, DefaultStreamsAreNotReleased) {
  Expect(commpool_release_stream(nullptr), COMMPOOL_INVALID_ARGUMENT, "default stream");
}

TEST_F(CAbi, NullCommunicatorsAreRefusedByAFixedPool) {
  EXPECT_NE(commpool_pool_register_with(pool_, nullptr), COMMPOOL_OK);
  EXPECT_NE(std::string(commpool_last_error()), "");
  EXPECT_EQ(commpool_pool_deregister(pool_, nullptr), COMMPOOL_OK) << "it never was registered";
  EXPECT_EQ(commpool_pool_abandon(pool_, nullptr, COMMPOOL_LIFE_ENDED), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_abandon(pool_, nullptr, COMMPOOL_LIFE_ALIVE), COMMPOOL_OK);
  Expect(commpool_pool_rehome(pool_, nullptr), COMMPOOL_NOT_SUPPORTED, "is not symmetric and has no home");
}

TEST_F(CAbi, AFixedPoolHasNoRankToLose) {
  int rank = 5;
  EXPECT_EQ(commpool_pool_lost_rank(pool_, &rank), COMMPOOL_OK);
  EXPECT_EQ(rank, -1);
  Expect(commpool_pool_lost_rank(pool_, nullptr), COMMPOOL_INVALID_ARGUMENT, "null");
}

TEST_F(CAbi, TheLastErrorIsTheThreadsOwn) {
  Expect(commpool_pool_close(kNoPool), COMMPOOL_NOT_FOUND, "987654");
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = commpool_last_error(); }).join();
  EXPECT_EQ(elsewhere, "") << "a thread without a failure has no sentence";
  EXPECT_EQ(commpool_free(nullptr), COMMPOOL_OK);
  EXPECT_NE(std::string(commpool_last_error()).find("987654"), std::string::npos) << "success keeps it";
}

TEST_F(CAbi, TheLibrarySaysItsVersion) { EXPECT_EQ(commpool_version(), COMMPOOL_VERSION); }

TEST_F(CAbi, TheDriverIsOpenedOnce) {
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_EMULATED, COMMPOOL_MEASURE_NOTHING), COMMPOOL_OK)
      << commpool_last_error();
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING), COMMPOOL_OK) << commpool_last_error();
  EXPECT_NE(std::string(commpool_driver_description()), "");
}

TEST_F(CAbi, AUsersFunctionsMakeAPoolsMemoryAndTheirRefusalIsOutOfMemory) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.backing = COMMPOOL_BACKING_USER;
  commpool_pool pool = 0;
  Expect(commpool_pool_create(&options, &pool), COMMPOOL_INVALID_ARGUMENT, "user");
  options.user_allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { return nullptr; };
  options.user_free = [](void*, ptrdiff_t, int, CUstream_st*, void*) {};
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  void* pointer = nullptr;
  EXPECT_EQ(commpool_pool_allocate(pool, 1, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY) << commpool_last_error();
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

TEST_F(CAbi, ExceptionsOfAUsersFunctionsDoNotPass) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.backing = COMMPOOL_BACKING_USER;
  options.user_allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { throw std::runtime_error("thrown"); };
  options.user_free = [](void*, ptrdiff_t, int, CUstream_st*, void*) {};
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  void* pointer = nullptr;
  Expect(commpool_pool_allocate(pool, 1, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT, "thrown");
  Expect(commpool_pool_reserve(pool, 1), COMMPOOL_INVALID_ARGUMENT, "thrown");  // no lock stayed locked
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

}  // namespace
