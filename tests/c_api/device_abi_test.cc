// The memory of a device through the C ABI: limits, and other allocators of the process.
#include <gtest/gtest.h>

#include <string>

#include "commpool/commpool.h"

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

void Expect(commpool_status status, commpool_status expected, const char* part) {
  EXPECT_EQ(status, expected) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
}

commpool_holder_options Defaults() {
  commpool_holder_options options;
  commpool_holder_options_init(&options);
  return options;
}

class DeviceAbi : public ::testing::Test {
 protected:
  DeviceAbi() {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    EXPECT_EQ(commpool_pool_create(&options, &pool_), COMMPOOL_OK) << commpool_last_error();
  }
  ~DeviceAbi() override {
    EXPECT_EQ(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX), COMMPOOL_OK) << commpool_last_error();
    EXPECT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK) << commpool_last_error();
  }

  commpool_pool pool_ = 0;
};

TEST_F(DeviceAbi, ALimitHoldsForThePoolsOfTheDevice) {
  ASSERT_EQ(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, 8 * kMiB), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_pool_reserve(pool_, 16 * kMiB), COMMPOOL_OUT_OF_MEMORY, "the limit of device 0, 8 MiB");
  EXPECT_EQ(commpool_pool_reserve(pool_, 4 * kMiB), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_reserve(pool_, 16 * kMiB), COMMPOOL_OK) << commpool_last_error();
}

TEST_F(DeviceAbi, ALimitOfAMissingDeviceIsRefused) {
  Expect(commpool_set_device_bound(99, COMMPOOL_DEVICE_LIMIT, kMiB), COMMPOOL_INVALID_ARGUMENT, "99");
  Expect(commpool_set_device_bound(-1, COMMPOOL_DEVICE_LIMIT, kMiB), COMMPOOL_INVALID_ARGUMENT, "-1");
  Expect(commpool_set_device_bound(99, COMMPOOL_DEVICE_HEADROOM, kMiB), COMMPOOL_INVALID_ARGUMENT, "99");
}

TEST_F(DeviceAbi, ABudgetTellsItsUseBesideItsLimit) {
  ASSERT_EQ(commpool_set_budget("kv", 8 * kMiB), COMMPOOL_OK) << commpool_last_error();
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  EXPECT_EQ(options.budget, nullptr);
  options.budget = "kv";
  commpool_pool pages = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pages), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_pool_reserve(pages, 16 * kMiB), COMMPOOL_OUT_OF_MEMORY, "the limit of budget kv of device 0, 8 MiB");
  EXPECT_EQ(commpool_pool_reserve(pages, 4 * kMiB), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_trim(pages, 0, nullptr), COMMPOOL_OK) << commpool_last_error();
  uint64_t reserved = 7;
  uint64_t peak = 7;
  uint64_t limit = 7;
  EXPECT_EQ(commpool_budget_use(0, "kv", &reserved, &peak, &limit), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(reserved, 0u);
  EXPECT_EQ(peak, 4 * kMiB);
  EXPECT_EQ(limit, 8 * kMiB);
  EXPECT_EQ(commpool_budget_use(0, nullptr, nullptr, &peak, &limit), COMMPOOL_OK) << "the device's";
  EXPECT_GE(peak, 4 * kMiB);
  EXPECT_EQ(limit, UINT64_MAX);
  EXPECT_EQ(commpool_pool_destroy(pages), COMMPOOL_OK) << commpool_last_error();
}

TEST_F(DeviceAbi, ABudgetWithoutANameOrThatNobodyMadeIsRefused) {
  Expect(commpool_set_budget(nullptr, kMiB), COMMPOOL_INVALID_ARGUMENT, "name");
  Expect(commpool_set_budget("", kMiB), COMMPOOL_INVALID_ARGUMENT, "name");
  Expect(commpool_budget_use(0, "none such", nullptr, nullptr, nullptr), COMMPOOL_NOT_FOUND,
         "no budget named none such");
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.budget = "none such";
  commpool_pool pool = 0;
  Expect(commpool_pool_create(&options, &pool), COMMPOOL_NOT_FOUND, "no budget named none such");
  options.backing = COMMPOOL_BACKING_PINNED;
  Expect(commpool_pool_create(&options, &pool), COMMPOOL_INVALID_ARGUMENT, "the pool has the host's");
}

TEST_F(DeviceAbi, AHolderHasNoFunctionsByDefault) {
  const commpool_holder_options options = Defaults();
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_STREQ(options.name, "other");
  EXPECT_EQ(options.cached_bytes, nullptr);
  EXPECT_EQ(options.release, nullptr);
  EXPECT_EQ(options.context, nullptr);
  commpool_holder_options_init(nullptr);
}

TEST_F(DeviceAbi, AHolderWithoutOptionsOrAnOutputIsRefused) {
  const commpool_holder_options options = Defaults();
  const commpool_holder_options uninitialised = {};
  commpool_holder holder = 7;
  Expect(commpool_add_holder(nullptr, &holder), COMMPOOL_INVALID_ARGUMENT, "null");
  Expect(commpool_add_holder(&options, nullptr), COMMPOOL_INVALID_ARGUMENT, "null");
  Expect(commpool_add_holder(&uninitialised, &holder), COMMPOOL_INVALID_ARGUMENT, "commpool_holder_options_init");
  EXPECT_EQ(holder, 7u) << "outputs are not written";
}

TEST_F(DeviceAbi, AHolderIsAskedAndNamedUntilItIsRemoved) {
  commpool_holder_options options = Defaults();
  uint64_t asked_for = 0;
  options.name = "framework";
  options.cached_bytes = [](int, void*) { return 3 * kMiB; };
  options.release = [](int, uint64_t bytes, void* context) -> uint64_t {
    *static_cast<uint64_t*>(context) = bytes;
    return 0;
  };
  options.context = &asked_for;
  commpool_holder holder = 0;
  ASSERT_EQ(commpool_add_holder(&options, &holder), COMMPOOL_OK) << commpool_last_error();
  EXPECT_NE(holder, 0u);
  void* held = nullptr;
  void* pointer = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 100 * kGiB, nullptr, &held), COMMPOOL_OK) << commpool_last_error();
  const uint64_t bytes = 90 * kGiB;  // more than is left of the device's 141 GiB
  Expect(commpool_pool_allocate(pool_, bytes, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "\n  framework ");
  EXPECT_EQ(asked_for, bytes);

  EXPECT_EQ(commpool_remove_holder(holder), COMMPOOL_OK) << commpool_last_error();
  asked_for = 0;
  Expect(commpool_pool_allocate(pool_, bytes, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "no memory for");
  EXPECT_EQ(std::string(commpool_last_error()).find("framework"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(asked_for, 0u);
  Expect(commpool_remove_holder(holder), COMMPOOL_NOT_FOUND, "free-memory callback");
  Expect(commpool_remove_holder(0), COMMPOOL_NOT_FOUND, "free-memory callback 0");
  EXPECT_EQ(commpool_free(held), COMMPOOL_OK) << commpool_last_error();
}

// A request that it made would ask it again, until the thread had no stack left.
TEST_F(DeviceAbi, AHolderMayFreeAndMakeNoOtherCall) {
  struct Calls {
    commpool_pool pool;
    commpool_holder holder = 0;
    void* block = nullptr;
    int asked = 0;
  } calls{pool_};
  commpool_holder_options options = Defaults();
  options.release = [](int, uint64_t, void* context) -> uint64_t {
    Calls& own = *static_cast<Calls*>(context);
    ++own.asked;
    void* pointer = nullptr;
    Expect(commpool_pool_allocate(own.pool, 100 * kGiB, nullptr, &pointer), COMMPOOL_FAILED_PRECONDITION,
           "a free-memory callback");
    Expect(commpool_remove_holder(own.holder), COMMPOOL_FAILED_PRECONDITION, "a free-memory callback");
    EXPECT_EQ(commpool_free(own.block), COMMPOOL_OK) << commpool_last_error();
    return 100 * kGiB;
  };
  options.context = &calls;
  ASSERT_EQ(commpool_add_holder(&options, &calls.holder), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(commpool_pool_allocate(pool_, 100 * kGiB, nullptr, &calls.block), COMMPOOL_OK) << commpool_last_error();
  void* pointer = nullptr;
  EXPECT_EQ(commpool_pool_allocate(pool_, 90 * kGiB, nullptr, &pointer), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(calls.asked, 1) << "what it freed served";
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_remove_holder(calls.holder), COMMPOOL_OK) << commpool_last_error();
}

}  // namespace
