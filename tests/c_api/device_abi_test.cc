// The memory of a device through the C ABI: limits, other allocators of the process, and NCCL's own memory, with an
// NCCL that cannot give it back.
#include <gtest/gtest.h>

#include <string>

#include "commpool/device.h"
#include "commpool/pool.h"
#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
namespace {

class DeviceAbi : public ::testing::Test {
 protected:
  ~DeviceAbi() override { ExpectOk(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX)); }

  const OwnedPool pool_;
};

TEST_F(DeviceAbi, ALimitHoldsForThePoolsOfTheDevice) {
  ExpectOk(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, MiB(8)));
  ExpectFailure(commpool_pool_reserve(pool_, MiB(16)), COMMPOOL_OUT_OF_MEMORY, "the limit of device 0, 8 MiB");
  ExpectOk(commpool_pool_reserve(pool_, MiB(4)));
  ExpectOk(commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX));
  ExpectOk(commpool_pool_reserve(pool_, MiB(16)));
}

TEST_F(DeviceAbi, ALimitOfAMissingDeviceIsRefused) {
  ExpectInvalid(commpool_set_device_bound(99, COMMPOOL_DEVICE_LIMIT, MiB(1)), "99");
  ExpectInvalid(commpool_set_device_bound(-1, COMMPOOL_DEVICE_LIMIT, MiB(1)), "-1");
  ExpectInvalid(commpool_set_device_bound(99, COMMPOOL_DEVICE_HEADROOM, MiB(1)), "99");
}

TEST_F(DeviceAbi, ABudgetTellsItsUseBesideItsLimit) {
  ExpectOk(commpool_set_budget("kv", MiB(8)));
  auto options = Initialised(commpool_pool_options_init);
  EXPECT_EQ(options.budget, nullptr);
  options.budget = "kv";
  const OwnedPool pages(options);
  ExpectFailure(commpool_pool_reserve(pages, MiB(16)), COMMPOOL_OUT_OF_MEMORY,
                "the limit of budget kv of device 0, 8 MiB");
  ExpectOk(commpool_pool_reserve(pages, MiB(4)));
  ExpectOk(commpool_pool_trim(pages, 0, nullptr));
  uint64_t reserved = 7;
  uint64_t peak = 7;
  uint64_t limit = 7;
  ExpectOk(commpool_budget_use(0, "kv", &reserved, &peak, &limit));
  EXPECT_EQ(reserved, 0u);
  EXPECT_EQ(peak, MiB(4));
  EXPECT_EQ(limit, MiB(8));
  EXPECT_EQ(commpool_budget_use(0, nullptr, nullptr, &peak, &limit), COMMPOOL_OK) << "the device's";
  EXPECT_GE(peak, MiB(4));
  EXPECT_EQ(limit, UINT64_MAX);
}

TEST_F(DeviceAbi, ABudgetWithoutANameOrThatNobodyMadeIsRefused) {
  ExpectInvalid(commpool_set_budget(nullptr, MiB(1)), "name");
  ExpectInvalid(commpool_set_budget("", MiB(1)), "name");
  ExpectNotFound(commpool_budget_use(0, "none such", nullptr, nullptr, nullptr), "no budget named none such");
  auto options = Initialised(commpool_pool_options_init);
  options.budget = "none such";
  commpool_pool pool = 0;
  ExpectNotFound(commpool_pool_create(&options, &pool), "no budget named none such");
  options.backing = COMMPOOL_BACKING_PINNED;
  ExpectInvalid(commpool_pool_create(&options, &pool), "the pool has the host's");
}

TEST_F(DeviceAbi, AHolderHasNoFunctionsByDefault) {
  const auto options = Initialised(commpool_holder_options_init);
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_STREQ(options.name, "other");
  EXPECT_EQ(options.cached_bytes, nullptr);
  EXPECT_EQ(options.release, nullptr);
  EXPECT_EQ(options.context, nullptr);
  commpool_holder_options_init(nullptr);
}

TEST_F(DeviceAbi, AHolderWithoutOptionsOrAnOutputIsRefused) {
  const auto options = Initialised(commpool_holder_options_init);
  const commpool_holder_options uninitialised = {};
  commpool_holder holder = 7;
  ExpectInvalid(commpool_add_holder(nullptr, &holder), "null");
  ExpectInvalid(commpool_add_holder(&options, nullptr), "null");
  ExpectInvalid(commpool_add_holder(&uninitialised, &holder), "commpool_holder_options_init");
  EXPECT_EQ(holder, 7u) << "outputs are not written";
}

TEST_F(DeviceAbi, AHolderIsAskedAndNamedUntilItIsRemoved) {
  auto options = Initialised(commpool_holder_options_init);
  uint64_t asked_for = 0;
  options.name = "framework";
  options.cached_bytes = [](int, void*) { return MiB(3); };
  options.release = [](int, uint64_t bytes, void* context) -> uint64_t {
    *static_cast<uint64_t*>(context) = bytes;
    return 0;
  };
  options.context = &asked_for;
  commpool_holder holder = 0;
  ExpectOk(commpool_add_holder(&options, &holder));
  EXPECT_NE(holder, 0u);
  void* const held = Allocate(pool_, GiB(100));
  void* pointer = nullptr;
  const uint64_t bytes = GiB(90);  // more than is left of the device's 141 GiB
  ExpectFailure(commpool_pool_allocate(pool_, bytes, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "\n  framework ");
  EXPECT_EQ(asked_for, bytes);

  ExpectOk(commpool_remove_holder(holder));
  asked_for = 0;
  ExpectFailure(commpool_pool_allocate(pool_, bytes, nullptr, &pointer), COMMPOOL_OUT_OF_MEMORY, "no memory for");
  EXPECT_EQ(std::string(commpool_last_error()).find("framework"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(asked_for, 0u);
  ExpectNotFound(commpool_remove_holder(holder), "free-memory callback");
  ExpectNotFound(commpool_remove_holder(0), "free-memory callback 0");
  Free(held);
}

// A request that it made would ask it again, until the thread had no stack left.
TEST_F(DeviceAbi, AHolderMayFreeAndMakeNoOtherCall) {
  struct Calls {
    commpool_pool pool;
    commpool_holder holder = 0;
    void* block = nullptr;
    int asked = 0;
  } calls{pool_};
  auto options = Initialised(commpool_holder_options_init);
  options.release = [](int, uint64_t, void* context) -> uint64_t {
    Calls& own = *static_cast<Calls*>(context);
    ++own.asked;
    void* pointer = nullptr;
    ExpectFailure(commpool_pool_allocate(own.pool, GiB(100), nullptr, &pointer), COMMPOOL_FAILED_PRECONDITION,
                  "a free-memory callback");
    ExpectFailure(commpool_remove_holder(own.holder), COMMPOOL_FAILED_PRECONDITION, "a free-memory callback");
    Free(own.block);
    return GiB(100);
  };
  options.context = &calls;
  ExpectOk(commpool_add_holder(&options, &calls.holder));
  calls.block = Allocate(pool_, GiB(100));
  Free(Allocate(pool_, GiB(90)));
  EXPECT_EQ(calls.asked, 1) << "what it freed served";
  ExpectOk(commpool_remove_holder(calls.holder));
}

// The emulator's default poses as 2.28.9, which must not be called with this.
ncclComm* const kAny = reinterpret_cast<ncclComm*>(uintptr_t{64});

TEST(CommunicatorAbi, SaysThatNcclIsOlder) {
  for (const Status& status : {sleep_communicator(kAny), wake_communicator(kAny), communicator_memory(kAny).status()}) {
    ExpectFailure(status, StatusCode::kNotSupported, "communicators that sleep need NCCL 2.29.7; ");
    ExpectFailure(status, StatusCode::kNotSupported, " is 2.28.9");
  }
}

TEST(CommunicatorAbi, RefusesNull) {
  EXPECT_EQ(commpool_communicator_sleep(nullptr, 1000), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_communicator_wake(nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_communicator_memory(nullptr, nullptr, nullptr, nullptr), COMMPOOL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace commpool::internal::testing
