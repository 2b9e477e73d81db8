// Registrars through the C ABI, over fixed pools: when they are told, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "commpool/registrar.h"
#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/library_of_a_test.h"

namespace commpool::internal::testing {
namespace {

class RegistrarAbi : public ::testing::Test {
 protected:
  ~RegistrarAbi() override {
    ExpectOk(commpool_pool_close(pool_));
    Destroy(pool_);
    EXPECT_TRUE(library_.registered().empty());
  }
  // Another pool than the one that each case begins with.
  void Remake(const commpool_pool_options& options) {
    Destroy(pool_);
    pool_ = MakePool(options);
  }
  commpool_status Add() { return Add(library_.Functions()); }
  commpool_status Add(const commpool_registrar& functions) {
    const commpool_registrar* const one = &functions;
    return commpool_pools_add_registrar(&pool_, &one, 1);
  }
  commpool_status Remove(const char* name) { return commpool_pools_remove_registrar(&pool_, 1, name); }
  commpool_statistics Statistics() const { return StatisticsOf(pool_); }
  void* Allocate(uint64_t bytes) const { return testing::Allocate(pool_, bytes); }

  commpool_pool pool_ = MakePool();
  LibraryOfATest library_;
};

TEST_F(RegistrarAbi, IsToldOfWholeSegments) {
  void* const block = Allocate(3 * kMiB);
  ExpectOk(Add());
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  EXPECT_EQ(library_.traits().struct_bytes, sizeof(commpool_segment_traits));
  EXPECT_EQ(library_.traits().backing, COMMPOOL_BACKING_VMM);
  EXPECT_EQ(library_.traits().location, COMMPOOL_LOCATION_DEVICE);
  EXPECT_EQ(library_.traits().numa_node, -1);
  EXPECT_EQ(library_.traits().one_handle, 1);
  EXPECT_EQ(library_.traits().descriptor, 1);
  EXPECT_EQ(Statistics().registered_segments, 1u);
  Free(block);
}

TEST_F(RegistrarAbi, HearsOfGrowthInsideOfAllocationsWhenTheProgramSaysSo) {
  ExpectOk(Add());
  void* const block = Allocate(3 * kMiB);
  EXPECT_EQ(library_.added(), 0) << "an allocation calls no registrar";
  EXPECT_EQ(Statistics().pending_segments, 1u);
  uint64_t made = 0;
  ExpectOk(commpool_pool_register_pending(pool_, &made));
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Free(block);
}

TEST_F(RegistrarAbi, KeepsRegisteredMemoryWhereItIs) {
  Free(Allocate(3 * kMiB));
  ExpectOk(Add());
  uint64_t released = 1;
  ExpectOk(commpool_pool_trim(pool_, 0, &released));
  EXPECT_EQ(released, 0u);
  ExpectOk(Remove("library"));
  ExpectOk(commpool_pool_trim(pool_, 0, &released));
  EXPECT_GT(released, 0u);
}

TEST_F(RegistrarAbi, SleepsAndWakesWithThePool) {
  void* const block = Allocate(3 * kMiB);
  ExpectOk(Add());
  ExpectOk(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED));
  EXPECT_EQ(library_.bytes(), 0u);
  ExpectOk(commpool_pool_wake(pool_, COMMPOOL_GRAPHS_REFUSED));
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Free(block);
}

TEST_F(RegistrarAbi, ThatCannotLetGoKeepsThePoolAwake) {
  void* const block = Allocate(3 * kMiB);
  ExpectOk(Add());
  library_.remove_answers = COMMPOOL_DRIVER_ERROR;
  library_.why = "a transfer is under way";
  ExpectFailure(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED), COMMPOOL_FAILED_PRECONDITION,
                "a transfer is under way");
  EXPECT_EQ(Statistics().asleep_bytes, 0u);
  library_.remove_answers = COMMPOOL_OK;
  Free(block);
}

// Other threads of the program go on: the registrar of this test returns only after they have.
TEST_F(RegistrarAbi, ThatBlocksKeepsNobodyFromMemory) {
  Free(Allocate(3 * kMiB));
  const uint64_t before = Statistics().reserved_bytes.current;
  void* block = nullptr;
  library_.before_add = [&] { std::thread([&] { block = Allocate(64 * kMiB); }).join(); };
  ExpectOk(Add());
  EXPECT_EQ(library_.bytes(), before);
  EXPECT_EQ(Statistics().pending_segments, 1u);
  library_.before_add = [] {};
  ExpectOk(commpool_pool_register_pending(pool_, nullptr));
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Free(block);
}

TEST_F(RegistrarAbi, KeepsTheMemoryThatIsBeingRegistered) {
  Free(Allocate(3 * kMiB));
  uint64_t released = 1;
  library_.before_add = [&] { std::thread([&] { ExpectOk(commpool_pool_trim(pool_, 0, &released)); }).join(); };
  ExpectOk(Add());
  EXPECT_EQ(released, 0u);
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
}

TEST_F(RegistrarAbi, MayNotCallTheLibrary) {
  Free(Allocate(3 * kMiB));
  commpool_status inside = COMMPOOL_OK;
  library_.before_add = [&] { inside = commpool_pool_register_pending(pool_, nullptr); };
  ExpectOk(Add());
  EXPECT_EQ(inside, COMMPOOL_FAILED_PRECONDITION);
}

TEST_F(RegistrarAbi, RefusesPoolsWhosePagesMove) {
  auto options = Initialised(commpool_pool_options_init);
  options.mode = COMMPOOL_MODE_EXPANDABLE;
  Remake(options);
  ExpectFailure(Add(), COMMPOOL_NOT_SUPPORTED, "its pages move");
}

TEST_F(RegistrarAbi, SaysWhatMemoryWithoutHandlesIs) {
  auto options = Initialised(commpool_pool_options_init);
  options.backing = COMMPOOL_BACKING_CUDA;
  Remake(options);
  ExpectOk(Add());
  EXPECT_EQ(library_.traits().backing, COMMPOOL_BACKING_CUDA);
  EXPECT_EQ(library_.traits().one_handle, 0);
  EXPECT_EQ(library_.traits().descriptor, 0);
  EXPECT_EQ(library_.traits().rdma, 0);
}

TEST_F(RegistrarAbi, RefusesArgumentsInWords) {
  ExpectInvalid(commpool_pools_add_registrar(&pool_, nullptr, 1), "registrars is null");
  const commpool_registrar* none = nullptr;
  ExpectInvalid(commpool_pools_add_registrar(&pool_, &none, 1), "is not null");
  ExpectInvalid(commpool_pools_add_registrar(nullptr, &none, 1), "pools is null");
  commpool_registrar functions = library_.Functions();
  functions.name = "";
  ExpectInvalid(Add(functions), "null or empty");
  const std::string long_name(200, 'n');
  functions.name = long_name.c_str();
  ExpectInvalid(Add(functions), "longer than 128 bytes");
  functions = library_.Functions();
  functions.remove = nullptr;
  ExpectInvalid(Add(functions), "needs both functions");
  functions = library_.Functions();
  functions.struct_bytes = 8;
  ExpectInvalid(Add(functions), "registrar");
  ExpectNotFound(Remove("nobody"), "no registrar named nobody");
  ExpectInvalid(Remove(nullptr), "null or empty");
}

}  // namespace
}  // namespace commpool::internal::testing
