// Sharing through the C ABI: arguments, sizes of structs, unknown values, captures.
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "commpool/share.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

void Expect(commpool_status status, commpool_status expected, const char* part) {
  EXPECT_EQ(status, expected) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos) << commpool_last_error();
}

// Hides a number from the compiler.
template <typename Enum>
Enum As(int number) {
  return static_cast<Enum>(number);
}

class ShareAbi : public ::testing::Test {
 protected:
  ShareAbi() : context_(PrimaryContext::Retain(*SharedDriver(), 0).value()), current_(*SharedDriver(), context_) {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    EXPECT_EQ(commpool_pool_create(&options, &pool_), COMMPOOL_OK) << commpool_last_error();
    EXPECT_EQ(commpool_pool_allocate(pool_, 4096, nullptr, &block_), COMMPOOL_OK) << commpool_last_error();
  }
  ~ShareAbi() override {
    EXPECT_EQ(commpool_free(block_), COMMPOOL_OK);
    EXPECT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK);
  }

  PrimaryContext context_;
  ContextGuard current_;
  commpool_pool pool_ = 0;
  void* block_ = nullptr;
  char ticket_[COMMPOOL_TICKET_BYTES] = "untouched";
};

TEST_F(ShareAbi, ChecksRoomAndValues) {
  const commpool_status wrong = COMMPOOL_INVALID_ARGUMENT;
  Expect(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, nullptr, 600), wrong, "null");
  Expect(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 511), wrong, "capacity is 511");
  Expect(commpool_pool_share(pool_, As<commpool_imports>(2), ticket_, 512), wrong, "imports 2 is none of REFUSE_SLEEP");
  Expect(commpool_block_share(block_, As<commpool_writes>(2), ticket_, 512), wrong, "writes 2 is none of GO_ON");
  Expect(commpool_block_share(block_, COMMPOOL_WRITES_ENDED, nullptr, 512), wrong, "null");
  Expect(commpool_block_share(this, COMMPOOL_WRITES_ENDED, ticket_, 512), COMMPOOL_NOT_FOUND, "");
  EXPECT_STREQ(ticket_, "untouched");
  Expect(commpool_update_begin(this), COMMPOOL_NOT_FOUND, "");
  Expect(commpool_update_end(this, nullptr), COMMPOOL_NOT_FOUND, "");
}

TEST_F(ShareAbi, RefusesMemoryOfTheProgramsOwnFunctions) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.backing = COMMPOOL_BACKING_USER;
  options.user_allocate = [](ptrdiff_t bytes, int, CUstream_st*, void*) -> void* {
    CUdeviceptr made = 0;
    SharedDriver()->cuda.cuMemAlloc(&made, static_cast<size_t>(bytes));
    return reinterpret_cast<void*>(made);
  };
  options.user_free = [](void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
  };
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 512), COMMPOOL_NOT_SUPPORTED, "no handle");
  EXPECT_STREQ(ticket_, "untouched");
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

TEST_F(ShareAbi, RefusesASymmetricPool) {
  const NcclLibrary& nccl = SharedDriver()->nccl;
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(nccl.ncclCommInitRank(&communicator, 1, id, 0), ncclSuccess);
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.symmetric_across = communicator;
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(commpool_pool_reserve(pool, 4096), COMMPOOL_OK) << commpool_last_error();
  void* block = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool, 4096, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 512), COMMPOOL_NOT_SUPPORTED, "symmetric");
  Expect(commpool_block_share(block, COMMPOOL_WRITES_ENDED, ticket_, 512), COMMPOOL_NOT_SUPPORTED, "symmetric");
  EXPECT_STREQ(ticket_, "untouched");
  commpool_peers peers = {};
  Expect(commpool_peers_of(block, &peers), COMMPOOL_FAILED_PRECONDITION, "map_peers()");
  Expect(commpool_peers_of(block, nullptr), COMMPOOL_INVALID_ARGUMENT, "null");
  ASSERT_EQ(commpool_pools_map_peers(&pool, 1), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_peers_of(block, &peers), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(peers.ranks, 1);
  EXPECT_NE(peers.first, nullptr);
  EXPECT_EQ(commpool_free(block), COMMPOOL_OK);
  Expect(commpool_peers_of(block, &peers), COMMPOOL_NOT_FOUND, "");
  Expect(commpool_pools_map_peers(nullptr, 1), COMMPOOL_INVALID_ARGUMENT, "pools is null");
  EXPECT_EQ(commpool_pool_close(pool), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
  EXPECT_EQ(nccl.ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(ShareAbi, ChecksTheOptionsOfImports) {
  const commpool_status wrong = COMMPOOL_INVALID_ARGUMENT;
  commpool_import import = 7;
  commpool_import_options options;
  commpool_import_options_init(&options);
  commpool_import_options_init(nullptr);
  Expect(commpool_import_open("x", &options, nullptr), wrong, "null");
  Expect(commpool_import_open(nullptr, &options, &import), wrong, "the ticket is null");
  options.addresses = As<commpool_addresses>(2);
  Expect(commpool_import_open("x", &options, &import), wrong, "addresses 2 is none of ANY, SAME");
  commpool_import_options_init(&options);
  options.device = -2;
  Expect(commpool_import_open("x", &options, &import), wrong, "device -2");
  commpool_import_options_init(&options);
  options.deadline_ms = 0;
  Expect(commpool_import_open("x", &options, &import), wrong, "deadline_ms is 0");
  options.deadline_ms = UINT64_MAX;  // the longest, as in all options
  Expect(commpool_import_open("x", &options, &import), wrong, "is no ticket");
  options.struct_bytes -= 8;
  Expect(commpool_import_open("x", &options, &import), wrong, "import_options");
  EXPECT_EQ(import, 7u);
}

TEST_F(ShareAbi, ImportsThatAreNoneAreNotFound) {
  const commpool_status none = COMMPOOL_NOT_FOUND;
  void* pointer = nullptr;
  Expect(commpool_import_block(77, "x", &pointer, nullptr), none, "import 77 was closed, or never opened");
  Expect(commpool_import_address(77, block_, &pointer), none, "import 77");
  Expect(commpool_read_begin(77, block_), none, "import 77");
  Expect(commpool_read_end(77, block_, nullptr), none, "import 77");
  Expect(commpool_import_release(77, block_, nullptr), none, "import 77");
  Expect(commpool_import_close(77), none, "import 77");
}

TEST_F(ShareAbi, AnUpdateDoesNotEndOnAStreamThatCaptures) {
  const CudaDriver& cuda = SharedDriver()->cuda;
  ASSERT_EQ(commpool_block_share(block_, COMMPOOL_WRITES_GO_ON, ticket_, sizeof(ticket_)), COMMPOOL_OK);
  CUstream stream = nullptr;
  ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(commpool_update_begin(block_), COMMPOOL_OK) << commpool_last_error();
  Expect(commpool_update_end(block_, stream), COMMPOOL_FAILED_PRECONDITION, "the stream captures");
  Expect(commpool_update_end(block_, COMMPOOL_NO_STREAM), COMMPOOL_INVALID_ARGUMENT, "COMMPOOL_NO_STREAM is for");
  CUgraph graph = nullptr;
  ASSERT_EQ(cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "and the capture goes on";
  EXPECT_EQ(commpool_update_end(block_, stream), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
}

// An update's event is of the pool's device, and waits for the peer that is current.
TEST_F(ShareAbi, AnUpdateEndsBehindTheDefaultStreamOfAPeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const CudaDriver& cuda = SharedDriver()->cuda;
  const int peer = 1;
  if (commpool_pool_set_access(pool_, &peer, 1, COMMPOOL_ACCESS_GRANTED) != COMMPOOL_OK)
    GTEST_SKIP() << commpool_last_error();
  ASSERT_EQ(commpool_block_share(block_, COMMPOOL_WRITES_GO_ON, ticket_, sizeof(ticket_)), COMMPOOL_OK);
  ASSERT_EQ(commpool_update_begin(block_), COMMPOOL_OK) << commpool_last_error();
  const PrimaryContext far = PrimaryContext::Retain(*SharedDriver(), 1).value();
  std::promise<void> end;
  {
    const ContextGuard there(*SharedDriver(), far);
    const auto wait = [](void* held) { static_cast<std::promise<void>*>(held)->get_future().wait(); };
    ASSERT_EQ(cuda.cuLaunchHostFunc(nullptr, wait, &end), CUDA_SUCCESS);
    EXPECT_EQ(commpool_update_end(block_, nullptr), COMMPOOL_OK) << commpool_last_error();
  }
  EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the update's event does not wait for the peer";
  end.set_value();
  EXPECT_EQ(cuda.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

// Who ends an update on a stream need not record it.
TEST_F(ShareAbi, ABlockServesBehindTheUpdatesOfIt) {
  const CudaDriver& cuda = SharedDriver()->cuda;
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.limit_bytes = 2 << 20;
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  CUstream stream = nullptr;
  ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(commpool_promise_stream(stream), COMMPOOL_OK);
  void* block = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool, 2 << 20, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(commpool_block_share(block, COMMPOOL_WRITES_GO_ON, ticket_, sizeof(ticket_)), COMMPOOL_OK);
  std::promise<void> end;
  const auto wait = [](void* held) { static_cast<std::promise<void>*>(held)->get_future().wait(); };
  ASSERT_EQ(commpool_update_begin(block), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(cuda.cuLaunchHostFunc(stream, wait, &end), CUDA_SUCCESS);
  ASSERT_EQ(commpool_update_end(block, stream), COMMPOOL_OK) << commpool_last_error();
  ASSERT_EQ(commpool_free(block), COMMPOOL_OK);
  ASSERT_EQ(commpool_pool_allocate(pool, 2 << 20, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the update may still write to the block";
  end.set_value();
  EXPECT_EQ(commpool_free(block), COMMPOOL_OK);
  EXPECT_EQ(commpool_release_stream(stream), COMMPOOL_OK);
  EXPECT_EQ(cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

TEST_F(ShareAbi, ASharedBlockIsFreedAtOnceWhereNobodyHoldsIt) {
  void* block = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 4096, nullptr, &block), COMMPOOL_OK);
  ASSERT_EQ(commpool_block_share(block, COMMPOOL_WRITES_GO_ON, ticket_, sizeof(ticket_)), COMMPOOL_OK);
  ASSERT_EQ(commpool_free(block), COMMPOOL_OK);
  void* again = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 4096, nullptr, &again), COMMPOOL_OK);
  EXPECT_EQ(again, block);
  EXPECT_EQ(commpool_free(again), COMMPOOL_OK);
  EXPECT_EQ(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_NO_COLLECTIVES), COMMPOOL_OK)
      << "nobody imports it: " << commpool_last_error();
  Expect(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, sizeof(ticket_)),
         COMMPOOL_FAILED_PRECONDITION, "is asleep");
  Expect(commpool_update_begin(block_), COMMPOOL_FAILED_PRECONDITION, "is asleep");
  EXPECT_EQ(commpool_pool_wake(pool_, COMMPOOL_GRAPHS_REFUSED), COMMPOOL_OK) << commpool_last_error();
}

}  // namespace
}  // namespace commpool::internal::testing
