// What a process-wide table keeps of an object goes with the object: after 1,000 of a kind the process has what it had
// after 500.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include "commpool/kept.h"
#include "commpool/record.h"
#include "commpool/registrar.h"
#include "commpool/share.h"
#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/library_of_a_test.h"

namespace commpool::internal::testing {
namespace {

struct Footprint {
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  uint64_t mappings = 0;
  uint64_t bytes = 0;  // of the heap

  static uint64_t Entries(const char* folder) {
    uint64_t count = 0;
    const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir(folder), closedir);
    while (readdir(list.get()) != nullptr) ++count;
    return count;
  }
  static Footprint Now() {
    std::ifstream maps("/proc/self/maps");
    Footprint now;
    now.mappings = static_cast<uint64_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
    now.descriptors = Entries("/proc/self/fd");
    now.threads = Entries("/proc/self/task");
    const struct mallinfo2 heap = mallinfo2();
    now.bytes = heap.uordblks + heap.hblkhd;
    return now;
  }
  // Mappings vary a little with the moment.
  bool HasNoMoreThan(const Footprint& before) const {
    return descriptors <= before.descriptors && threads <= before.threads && mappings <= before.mappings + 16;
  }
  // Bytes vary too; 500 objects that leave anything leave more, for malloc gives nothing smaller than 32 bytes.
  bool IsFlatSince(const Footprint& before) const { return HasNoMoreThan(before) && bytes < before.bytes + 500 * 32; }
  friend std::ostream& operator<<(std::ostream& out, const Footprint& of) {
    return out << of.descriptors << " descriptors, " << of.threads << " threads, " << of.mappings << " mappings, "
               << of.bytes << " bytes";
  }
};

class ThousandEnds : public DriverTest {
 protected:
  ThousandEnds() : context_(PrimaryContext::Retain(driver(), 0).value()), current_(driver(), context_) {
    AllowLeak("");  // the emulator's own check; this test has a stricter one
  }

  // Each call makes one object of a kind, uses it and ends it. Bytes that objects leave grow in both halves; a table
  // that doubles does so in one.
  static void ExpectFlat(const std::function<void()>& make_and_end) {
    for (int object = 0; object < 500 && !HasFailure(); ++object) make_and_end();
    Footprint before;
    Footprint after = Footprint::Now();
    bool flat = false;
    for (int half = 0; half < 2 && !flat; ++half) {
      before = after;
      for (int object = 0; object < 500 && !HasFailure(); ++object) make_and_end();
      after = Footprint::Now();
      // A thread that has ended is listed for a moment longer.
      for (int look = 0; look < 1000 && !after.IsFlatSince(before); ++look) after = Footprint::Now();
      EXPECT_TRUE(after.HasNoMoreThan(before)) << before << "; then " << after;
      flat = after.IsFlatSince(before);
    }
    EXPECT_TRUE(flat) << before << "; then " << after;
  }

  struct ClosedPool : OwnedPool {
    using OwnedPool::OwnedPool;
    ~ClosedPool() { ExpectOk(commpool_pool_close(handle), owner); }
  };
  void ExpectFlatPools() {
    ExpectFlat([&] {
      const ClosedPool pool(options_);
      void* const large = Allocate(pool, 3 * kMiB);
      void* const small = Allocate(pool, 1000);
      Free(large);
      Free(small);
    });
  }
  CUstream MakeStream() const {
    CUstream stream = nullptr;
    EXPECT_EQ(driver().cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  void EndStream(CUstream stream) const { EXPECT_EQ(driver().cuda.cuStreamDestroy(stream), CUDA_SUCCESS); }
  ncclComm_t MakeCommunicator() const {
    ncclUniqueId id;
    ncclComm_t communicator = nullptr;
    EXPECT_EQ(driver().nccl.ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclCommInitRank(&communicator, 1, id, 0), ncclSuccess);
    return communicator;
  }

  PrimaryContext context_;
  ContextGuard current_;
  commpool_pool_options options_ = Initialised(commpool_pool_options_init);
};

TEST_F(ThousandEnds, OfPoolsOfEachBacking) {
  for (const commpool_backing backing :
       {COMMPOOL_BACKING_VMM, COMMPOOL_BACKING_CUDA, COMMPOOL_BACKING_NCCL, COMMPOOL_BACKING_PINNED}) {
    SCOPED_TRACE(backing);
    options_.backing = backing;
    ExpectFlatPools();
  }
}

TEST_F(ThousandEnds, OfExpandablePools) {
  options_.mode = COMMPOOL_MODE_EXPANDABLE;
  ExpectFlatPools();
}

TEST_F(ThousandEnds, OfPoolsOfTheProgramsOwnMemory) {
  options_.backing = COMMPOOL_BACKING_USER;
  options_.user_allocate = [](ptrdiff_t bytes, int, CUstream_st*, void*) -> void* {
    CUdeviceptr made = 0;
    SharedDriver()->cuda.cuMemAlloc(&made, static_cast<size_t>(bytes));
    return reinterpret_cast<void*>(made);
  };
  options_.user_free = [](void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
  };
  ExpectFlatPools();
}

TEST_F(ThousandEnds, OfPoolsWithPlainFunctions) {
  ExpectFlat([&] {
    const ClosedPool pool(options_);
    commpool_plain_allocate allocate = nullptr;
    commpool_plain_free release = nullptr;
    ExpectOk(commpool_pool_functions(pool, &allocate, &release));
    release(allocate(kMiB, 0, nullptr), kMiB, 0, nullptr);
  });
}

TEST_F(ThousandEnds, OfSharedPools) {
  for (const bool block_lives_longer : {false, true}) {
    SCOPED_TRACE(block_lives_longer);
    ExpectFlat([&] {
      char ticket[COMMPOOL_TICKET_BYTES];
      const commpool_pool pool = MakePool();
      void* const block = Allocate(pool, kMiB);
      ExpectOk(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket, sizeof(ticket)));
      ExpectOk(commpool_block_share(block, COMMPOOL_WRITES_GO_ON, ticket, sizeof(ticket)));
      ExpectOk(commpool_update_begin(block));
      ExpectOk(commpool_update_end(block, nullptr));
      if (!block_lives_longer) Free(block);
      Destroy(pool);
      EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);  // else a later call gives the memory back
      if (block_lives_longer) Free(block);
    });
  }
}

TEST_F(ThousandEnds, OfSymmetricPools) {
  ncclComm_t const communicator = MakeCommunicator();
  options_.symmetric_across = communicator;
  ExpectFlat([&] {
    const ClosedPool pool(options_);
    ExpectOk(commpool_pool_reserve(pool, 4 * kMiB));
    Free(Allocate(pool, kMiB));
  });
  EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(ThousandEnds, OfRegistrationsAndCommunicators) {
  const ClosedPool pool(options_);
  void* const block = Allocate(pool, kMiB);
  ExpectFlat([&] {
    ncclComm_t const communicator = MakeCommunicator();
    ExpectOk(commpool_pool_register_with(pool, communicator));
    ExpectOk(commpool_pool_deregister(pool, communicator));
    EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator), ncclSuccess);
  });
  Free(block);
}

TEST_F(ThousandEnds, OfRegistrars) {
  LibraryOfATest library;
  const commpool_registrar functions = library.Functions();
  const commpool_registrar* const registrars[] = {&functions};
  ExpectFlat([&] {
    const ClosedPool pool(options_);
    void* const block = Allocate(pool, kMiB);
    ExpectOk(commpool_pools_add_registrar(&pool.handle, registrars, 1));
    Free(block);
  });
}

TEST_F(ThousandEnds, OfScopes) {
  const ClosedPool pool(options_);
  for (const commpool_filter filter : {COMMPOOL_FILTER_THREAD, COMMPOOL_FILTER_STREAM, COMMPOOL_FILTER_PROCESS}) {
    SCOPED_TRACE(filter);
    ExpectFlat([&] {
      auto options = Initialised(commpool_scope_options_init);
      options.filter = filter;
      void* block = nullptr;
      {
        const OpenScope scope(pool, &options);
        block = AllocateCaught(kMiB);
      }
      Free(block);
    });
  }
}

TEST_F(ThousandEnds, OfCapturesAndTheirGraphs) {
  CUstream const stream = MakeStream();
  {
    const ClosedPool pool(options_);
    ExpectFlat([&] {
      commpool_capture capture = 0;
      CUgraph graph = nullptr;
      EXPECT_EQ(driver().cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
      ExpectOk(commpool_capture_begin(pool, stream, &capture));
      Free(Allocate(pool, kMiB, stream));
      ExpectOk(commpool_capture_end(capture));
      EXPECT_EQ(driver().cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
      EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
      ExpectOk(commpool_pool_trim(pool, 0, nullptr));
    });
  }
  EndStream(stream);
}

TEST_F(ThousandEnds, OfStreams) {
  const ClosedPool pool(options_);
  for (const bool promised : {false, true}) {
    SCOPED_TRACE(promised);
    ExpectFlat([&] {
      CUstream const stream = MakeStream();
      if (promised) ExpectOk(commpool_promise_stream(stream));
      void* const large = Allocate(pool, 3 * kMiB, stream);
      void* const small = Allocate(pool, 1000);
      ExpectOk(commpool_record_stream(small, stream));
      Free(large);
      Free(small);
      if (promised) ExpectOk(commpool_release_stream(stream));
      EndStream(stream);
      EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
    });
  }
}

TEST_F(ThousandEnds, OfThreads) {
  const ClosedPool pool(options_);
  ExpectFlat([&] {
    std::thread([&] {
      const ContextGuard current(driver(), context_);
      for (CUstream const stream : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        Free(Allocate(pool, 3 * kMiB, stream));
        Free(Allocate(pool, 1000, stream));
      }
    }).join();
    EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

TEST_F(ThousandEnds, OfHolders) {
  ExpectFlat([] {
    auto options = Initialised(commpool_holder_options_init);
    commpool_holder holder = 0;
    ExpectOk(commpool_add_holder(&options, &holder));
    ExpectOk(commpool_remove_holder(holder));
  });
}

TEST_F(ThousandEnds, OfSleeps) {
  const ClosedPool pool(options_);
  void* const block = Allocate(pool, kMiB);
  for (const commpool_kept_in kept_in : {COMMPOOL_KEPT_IN_PINNED, COMMPOOL_KEPT_IN_PAGEABLE}) {
    SCOPED_TRACE(kept_in);
    ExpectFlat([&] {
      auto options = Initialised(commpool_sleep_options_init);
      options.kept_in = kept_in;
      options.retain = 1;
      ExpectOk(commpool_pools_sleep_keeping(&pool.handle, 1, &options));
      ExpectOk(commpool_pool_wake(pool, COMMPOOL_GRAPHS_REFUSED));
    });
  }
  Free(block);
}

TEST_F(ThousandEnds, OfRecordings) {
  std::string folder = "/tmp/commpool-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const ClosedPool pool(options_);
  ExpectFlat([&] {
    auto options = Initialised(commpool_record_options_init);
    options.directory = folder.c_str();
    options.limit_bytes = kMiB;
    ExpectOk(commpool_record(&options));
    Free(Allocate(pool, 3 * kMiB));
    ExpectOk(commpool_record(nullptr));
    std::filesystem::remove_all(folder);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
