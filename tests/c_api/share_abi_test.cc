// Sharing through the C ABI: arguments, sizes of structs, unknown values, captures.
#include <gtest/gtest.h>

#include <future>

#include "commpool/share.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class ShareAbi : public ::testing::Test {
 protected:
  ShareAbi() : context_(PrimaryContext::Retain(*SharedDriver(), 0).value()), current_(*SharedDriver(), context_) {}
  ~ShareAbi() override { Free(block_); }

  commpool_status Share(void* block) {
    return commpool_block_share(block, COMMPOOL_WRITES_GO_ON, ticket_, sizeof(ticket_));
  }
  const CudaDriver& cuda() const { return SharedDriver()->cuda; }
  CUstream MakeStream() const {
    CUstream stream = nullptr;
    EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  // The stream's work runs until `end` is set.
  void Hold(CUstream stream, std::promise<void>& end) const {
    const auto wait = [](void* held) { static_cast<std::promise<void>*>(held)->get_future().wait(); };
    EXPECT_EQ(cuda().cuLaunchHostFunc(stream, wait, &end), CUDA_SUCCESS);
  }

  PrimaryContext context_;
  ContextGuard current_;
  const OwnedPool pool_;
  void* const block_ = Allocate(pool_, 4096);
  char ticket_[COMMPOOL_TICKET_BYTES] = "untouched";
};

TEST_F(ShareAbi, ChecksRoomAndValues) {
  ExpectInvalid(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, nullptr, 600), "null");
  ExpectInvalid(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 511), "capacity is 511");
  ExpectInvalid(commpool_pool_share(pool_, As<commpool_imports>(2), ticket_, 512), "imports 2 is none of REFUSE_SLEEP");
  ExpectInvalid(commpool_block_share(block_, As<commpool_writes>(2), ticket_, 512), "writes 2 is none of GO_ON");
  ExpectInvalid(commpool_block_share(block_, COMMPOOL_WRITES_ENDED, nullptr, 512), "null");
  ExpectNotFound(commpool_block_share(this, COMMPOOL_WRITES_ENDED, ticket_, 512), "");
  EXPECT_STREQ(ticket_, "untouched");
  ExpectNotFound(commpool_update_begin(this), "");
  ExpectNotFound(commpool_update_end(this, nullptr), "");
}

TEST_F(ShareAbi, RefusesMemoryOfTheProgramsOwnFunctions) {
  auto options = Initialised(commpool_pool_options_init);
  options.backing = COMMPOOL_BACKING_USER;
  options.user_allocate = [](ptrdiff_t bytes, int, CUstream_st*, void*) -> void* {
    CUdeviceptr made = 0;
    SharedDriver()->cuda.cuMemAlloc(&made, static_cast<size_t>(bytes));
    return reinterpret_cast<void*>(made);
  };
  options.user_free = [](void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
  };
  const OwnedPool pool(options);
  ExpectFailure(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 512), COMMPOOL_NOT_SUPPORTED,
                "no handle");
  EXPECT_STREQ(ticket_, "untouched");
}

TEST_F(ShareAbi, RefusesASymmetricPool) {
  const NcclLibrary& nccl = SharedDriver()->nccl;
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(nccl.ncclCommInitRank(&communicator, 1, id, 0), ncclSuccess);
  auto options = Initialised(commpool_pool_options_init);
  options.symmetric_across = communicator;
  const commpool_pool pool = MakePool(options);
  ExpectOk(commpool_pool_reserve(pool, 4096));
  void* const block = Allocate(pool, 4096);
  ExpectFailure(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, 512), COMMPOOL_NOT_SUPPORTED,
                "symmetric");
  ExpectFailure(commpool_block_share(block, COMMPOOL_WRITES_ENDED, ticket_, 512), COMMPOOL_NOT_SUPPORTED, "symmetric");
  EXPECT_STREQ(ticket_, "untouched");
  commpool_peers peers = {};
  ExpectFailure(commpool_peers_of(block, &peers), COMMPOOL_FAILED_PRECONDITION, "map_peers()");
  ExpectInvalid(commpool_peers_of(block, nullptr), "null");
  ExpectOk(commpool_pools_map_peers(&pool, 1));
  ExpectOk(commpool_peers_of(block, &peers));
  EXPECT_EQ(peers.ranks, 1);
  EXPECT_NE(peers.first, nullptr);
  Free(block);
  ExpectNotFound(commpool_peers_of(block, &peers), "");
  ExpectInvalid(commpool_pools_map_peers(nullptr, 1), "pools is null");
  ExpectOk(commpool_pool_close(pool));
  Destroy(pool);
  EXPECT_EQ(nccl.ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(ShareAbi, ChecksTheOptionsOfImports) {
  commpool_import import = 7;
  auto options = Initialised(commpool_import_options_init);
  commpool_import_options_init(nullptr);
  ExpectInvalid(commpool_import_open("x", &options, nullptr), "null");
  ExpectInvalid(commpool_import_open(nullptr, &options, &import), "the ticket is null");
  options.addresses = As<commpool_addresses>(2);
  ExpectInvalid(commpool_import_open("x", &options, &import), "addresses 2 is none of ANY, SAME");
  commpool_import_options_init(&options);
  options.device = -2;
  ExpectInvalid(commpool_import_open("x", &options, &import), "device -2");
  commpool_import_options_init(&options);
  options.deadline_ms = 0;
  ExpectInvalid(commpool_import_open("x", &options, &import), "deadline_ms is 0");
  options.deadline_ms = UINT64_MAX;  // the longest, as in all options
  ExpectInvalid(commpool_import_open("x", &options, &import), "is no ticket");
  options.struct_bytes -= 8;
  ExpectInvalid(commpool_import_open("x", &options, &import), "import_options");
  EXPECT_EQ(import, 7u);
}

TEST_F(ShareAbi, ImportsThatAreNoneAreNotFound) {
  void* pointer = nullptr;
  ExpectNotFound(commpool_import_block(77, "x", &pointer, nullptr), "import 77 was closed, or never opened");
  ExpectNotFound(commpool_import_address(77, block_, &pointer), "import 77");
  ExpectNotFound(commpool_read_begin(77, block_), "import 77");
  ExpectNotFound(commpool_read_end(77, block_, nullptr), "import 77");
  ExpectNotFound(commpool_import_release(77, block_, nullptr), "import 77");
  ExpectNotFound(commpool_import_close(77), "import 77");
}

TEST_F(ShareAbi, AnUpdateDoesNotEndOnAStreamThatCaptures) {
  ExpectOk(Share(block_));
  const CUstream stream = MakeStream();
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ExpectOk(commpool_update_begin(block_));
  ExpectFailure(commpool_update_end(block_, stream), COMMPOOL_FAILED_PRECONDITION, "the stream captures");
  ExpectInvalid(commpool_update_end(block_, COMMPOOL_NO_STREAM), "COMMPOOL_NO_STREAM is for");
  CUgraph graph = nullptr;
  ASSERT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "and the capture goes on";
  ExpectOk(commpool_update_end(block_, stream));
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

// An update's event is of the pool's device, and waits for the peer that is current.
TEST_F(ShareAbi, AnUpdateEndsBehindTheDefaultStreamOfAPeer) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const int peer = 1;
  if (commpool_pool_set_access(pool_, &peer, 1, COMMPOOL_ACCESS_GRANTED) != COMMPOOL_OK)
    GTEST_SKIP() << commpool_last_error();
  ExpectOk(Share(block_));
  ExpectOk(commpool_update_begin(block_));
  const PrimaryContext far = PrimaryContext::Retain(*SharedDriver(), 1).value();
  std::promise<void> end;
  {
    const ContextGuard there(*SharedDriver(), far);
    Hold(nullptr, end);
    ExpectOk(commpool_update_end(block_, nullptr));
  }
  EXPECT_EQ(cuda().cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the update's event does not wait for the peer";
  end.set_value();
  EXPECT_EQ(cuda().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

// Who ends an update on a stream need not record it.
TEST_F(ShareAbi, ABlockServesBehindTheUpdatesOfIt) {
  auto options = Initialised(commpool_pool_options_init);
  options.limit_bytes = 2 << 20;
  const OwnedPool pool(options);
  const CUstream stream = MakeStream();
  ExpectOk(commpool_promise_stream(stream));
  void* const block = Allocate(pool, 2 << 20);
  ExpectOk(Share(block));
  std::promise<void> end;
  ExpectOk(commpool_update_begin(block));
  Hold(stream, end);
  ExpectOk(commpool_update_end(block, stream));
  Free(block);
  void* const again = Allocate(pool, 2 << 20);
  EXPECT_EQ(cuda().cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the update may still write to the block";
  end.set_value();
  Free(again);
  ExpectOk(commpool_release_stream(stream));
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(ShareAbi, ASharedBlockIsFreedAtOnceWhereNobodyHoldsIt) {
  void* const block = Allocate(pool_, 4096);
  ExpectOk(Share(block));
  Free(block);
  void* const again = Allocate(pool_, 4096);
  EXPECT_EQ(again, block);
  Free(again);
  EXPECT_EQ(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_NO_COLLECTIVES), COMMPOOL_OK)
      << "nobody imports it: " << commpool_last_error();
  ExpectFailure(commpool_pool_share(pool_, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket_, sizeof(ticket_)),
                COMMPOOL_FAILED_PRECONDITION, "is asleep");
  ExpectFailure(commpool_update_begin(block_), COMMPOOL_FAILED_PRECONDITION, "is asleep");
  ExpectOk(commpool_pool_wake(pool_, COMMPOOL_GRAPHS_REFUSED));
}

}  // namespace
}  // namespace commpool::internal::testing
