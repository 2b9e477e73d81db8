// Registrars through the C ABI, over fixed pools: when they are told, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "commpool/registrar.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/library_of_a_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

void Good(commpool_status status) { EXPECT_EQ(status, COMMPOOL_OK) << commpool_last_error(); }
void Expect(commpool_status status, commpool_status expected, const char* part) {
  EXPECT_EQ(status, expected) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
}

class RegistrarAbi : public ::testing::Test {
 protected:
  RegistrarAbi() {
    commpool_pool_options_init(&options_);
    options_.name = "transfers";
  }
  ~RegistrarAbi() override {
    Good(commpool_pool_close(pool_));
    Good(commpool_pool_destroy(pool_));
    EXPECT_TRUE(library_.registered().empty());
  }
  void Make() { Good(commpool_pool_create(&options_, &pool_)); }
  commpool_status Add(LibraryOfATest& library) {
    const commpool_registrar functions = library.Functions();
    const commpool_registrar* const registrars[] = {&functions};
    return commpool_pools_add_registrar(&pool_, registrars, 1);
  }
  commpool_status Remove(const char* name) { return commpool_pools_remove_registrar(&pool_, 1, name); }
  commpool_statistics Statistics() {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    Good(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics));
    return statistics;
  }
  void* Allocate(uint64_t bytes) {
    void* block = nullptr;
    Good(commpool_pool_allocate(pool_, bytes, nullptr, &block));
    return block;
  }

  commpool_pool_options options_;
  commpool_pool pool_ = 0;
  LibraryOfATest library_;
};

TEST_F(RegistrarAbi, IsToldOfWholeSegments) {
  Make();
  void* const block = Allocate(3 * kMiB);
  Good(Add(library_));
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  EXPECT_EQ(library_.traits().struct_bytes, sizeof(commpool_segment_traits));
  EXPECT_EQ(library_.traits().backing, COMMPOOL_BACKING_VMM);
  EXPECT_EQ(library_.traits().location, COMMPOOL_LOCATION_DEVICE);
  EXPECT_EQ(library_.traits().numa_node, -1);
  EXPECT_EQ(library_.traits().one_handle, 1);
  EXPECT_EQ(library_.traits().descriptor, 1);
  EXPECT_EQ(Statistics().registered_segments, 1u);
  Good(commpool_free(block));
}

TEST_F(RegistrarAbi, HearsOfGrowthInsideOfAllocationsWhenTheProgramSaysSo) {
  Make();
  Good(Add(library_));
  void* const block = Allocate(3 * kMiB);
  EXPECT_EQ(library_.added(), 0) << "an allocation calls no registrar";
  EXPECT_EQ(Statistics().pending_segments, 1u);
  uint64_t made = 0;
  Good(commpool_pool_register_pending(pool_, &made));
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Good(commpool_free(block));
}

TEST_F(RegistrarAbi, KeepsRegisteredMemoryWhereItIs) {
  Make();
  Good(commpool_free(Allocate(3 * kMiB)));
  Good(Add(library_));
  uint64_t released = 1;
  Good(commpool_pool_trim(pool_, 0, &released));
  EXPECT_EQ(released, 0u);
  Good(Remove("library"));
  Good(commpool_pool_trim(pool_, 0, &released));
  EXPECT_GT(released, 0u);
}

TEST_F(RegistrarAbi, SleepsAndWakesWithThePool) {
  Make();
  void* const block = Allocate(3 * kMiB);
  Good(Add(library_));
  Good(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED));
  EXPECT_EQ(library_.bytes(), 0u);
  Good(commpool_pool_wake(pool_, COMMPOOL_GRAPHS_REFUSED));
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Good(commpool_free(block));
}

TEST_F(RegistrarAbi, ThatCannotLetGoKeepsThePoolAwake) {
  Make();
  void* const block = Allocate(3 * kMiB);
  Good(Add(library_));
  library_.remove_answers = COMMPOOL_DRIVER_ERROR;
  library_.why = "a transfer is under way";
  Expect(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_REFUSED), COMMPOOL_FAILED_PRECONDITION,
         "a transfer is under way");
  EXPECT_EQ(Statistics().asleep_bytes, 0u);
  library_.remove_answers = COMMPOOL_OK;
  Good(commpool_free(block));
}

// Other threads of the program go on: the registrar of this test returns only after they have.
TEST_F(RegistrarAbi, ThatBlocksKeepsNobodyFromMemory) {
  Make();
  Good(commpool_free(Allocate(3 * kMiB)));
  const uint64_t before = Statistics().reserved_bytes.current;
  void* block = nullptr;
  library_.before_add = [&] { std::thread([&] { block = Allocate(64 * kMiB); }).join(); };
  Good(Add(library_));
  EXPECT_EQ(library_.bytes(), before);
  EXPECT_EQ(Statistics().pending_segments, 1u);
  library_.before_add = [] {};
  Good(commpool_pool_register_pending(pool_, nullptr));
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
  Good(commpool_free(block));
}

TEST_F(RegistrarAbi, KeepsTheMemoryThatIsBeingRegistered) {
  Make();
  Good(commpool_free(Allocate(3 * kMiB)));
  uint64_t released = 1;
  library_.before_add = [&] { std::thread([&] { Good(commpool_pool_trim(pool_, 0, &released)); }).join(); };
  Good(Add(library_));
  EXPECT_EQ(released, 0u);
  EXPECT_EQ(library_.bytes(), Statistics().reserved_bytes.current);
}

TEST_F(RegistrarAbi, MayNotCallTheLibrary) {
  Make();
  Good(commpool_free(Allocate(3 * kMiB)));
  commpool_status inside = COMMPOOL_OK;
  library_.before_add = [&] { inside = commpool_pool_register_pending(pool_, nullptr); };
  Good(Add(library_));
  EXPECT_EQ(inside, COMMPOOL_FAILED_PRECONDITION);
}

TEST_F(RegistrarAbi, RefusesPoolsWhosePagesMove) {
  options_.mode = COMMPOOL_MODE_EXPANDABLE;
  Make();
  Expect(Add(library_), COMMPOOL_NOT_SUPPORTED, "its pages move");
}

TEST_F(RegistrarAbi, SaysWhatMemoryWithoutHandlesIs) {
  options_.backing = COMMPOOL_BACKING_CUDA;
  Make();
  Good(Add(library_));
  EXPECT_EQ(library_.traits().backing, COMMPOOL_BACKING_CUDA);
  EXPECT_EQ(library_.traits().one_handle, 0);
  EXPECT_EQ(library_.traits().descriptor, 0);
  EXPECT_EQ(library_.traits().rdma, 0);
}

TEST_F(RegistrarAbi, RefusesArgumentsInWords) {
  Make();
  Expect(commpool_pools_add_registrar(&pool_, nullptr, 1), COMMPOOL_INVALID_ARGUMENT, "registrars is null");
  const commpool_registrar* none = nullptr;
  Expect(commpool_pools_add_registrar(&pool_, &none, 1), COMMPOOL_INVALID_ARGUMENT, "is not null");
  Expect(commpool_pools_add_registrar(nullptr, &none, 1), COMMPOOL_INVALID_ARGUMENT, "pools is null");
  commpool_registrar functions = library_.Functions();
  const commpool_registrar* const one = &functions;
  functions.name = "";
  Expect(commpool_pools_add_registrar(&pool_, &one, 1), COMMPOOL_INVALID_ARGUMENT, "null or empty");
  const std::string long_name(200, 'n');
  functions.name = long_name.c_str();
  Expect(commpool_pools_add_registrar(&pool_, &one, 1), COMMPOOL_INVALID_ARGUMENT, "longer than 128 bytes");
  functions = library_.Functions();
  functions.remove = nullptr;
  Expect(commpool_pools_add_registrar(&pool_, &one, 1), COMMPOOL_INVALID_ARGUMENT, "needs both functions");
  functions = library_.Functions();
  functions.struct_bytes = 8;
  Expect(commpool_pools_add_registrar(&pool_, &one, 1), COMMPOOL_INVALID_ARGUMENT, "registrar");
  Expect(Remove("nobody"), COMMPOOL_NOT_FOUND, "no registrar named nobody");
  Expect(Remove(nullptr), COMMPOOL_INVALID_ARGUMENT, "null or empty");
}

}  // namespace
}  // namespace commpool::internal::testing
