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

#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "commpool/record.h"
#include "commpool/registrar.h"
#include "commpool/share.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/library_of_a_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

void Good(commpool_status status) { ASSERT_EQ(status, COMMPOOL_OK) << commpool_last_error(); }

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
    commpool_pool_options_init(&options_);
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

  commpool_pool Make() {
    commpool_pool pool = 0;
    EXPECT_EQ(commpool_pool_create(&options_, &pool), COMMPOOL_OK) << commpool_last_error();
    return pool;
  }
  static void* Allocate(commpool_pool pool, uint64_t bytes, CUstream stream = nullptr) {
    void* block = nullptr;
    EXPECT_EQ(commpool_pool_allocate(pool, bytes, stream, &block), COMMPOOL_OK) << commpool_last_error();
    return block;
  }
  static void End(commpool_pool pool) {
    Good(commpool_pool_close(pool));
    Good(commpool_pool_destroy(pool));
  }
  void ExpectFlatPools() {
    ExpectFlat([&] {
      const commpool_pool pool = Make();
      void* const large = Allocate(pool, 3 * kMiB);
      void* const small = Allocate(pool, 1000);
      Good(commpool_free(large));
      Good(commpool_free(small));
      End(pool);
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
  commpool_pool_options options_;
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
    const commpool_pool pool = Make();
    commpool_plain_allocate allocate = nullptr;
    commpool_plain_free release = nullptr;
    Good(commpool_pool_functions(pool, &allocate, &release));
    release(allocate(kMiB, 0, nullptr), kMiB, 0, nullptr);
    End(pool);
  });
}

TEST_F(ThousandEnds, OfSharedPools) {
  for (const bool block_lives_longer : {false, true}) {
    SCOPED_TRACE(block_lives_longer);
    ExpectFlat([&] {
      char ticket[COMMPOOL_TICKET_BYTES];
      const commpool_pool pool = Make();
      void* const block = Allocate(pool, kMiB);
      Good(commpool_pool_share(pool, COMMPOOL_IMPORTS_REFUSE_SLEEP, ticket, sizeof(ticket)));
      Good(commpool_block_share(block, COMMPOOL_WRITES_GO_ON, ticket, sizeof(ticket)));
      Good(commpool_update_begin(block));
      Good(commpool_update_end(block, nullptr));
      if (!block_lives_longer) Good(commpool_free(block));
      Good(commpool_pool_destroy(pool));
      EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);  // else a later call gives the memory back
      if (block_lives_longer) Good(commpool_free(block));
    });
  }
}

TEST_F(ThousandEnds, OfSymmetricPools) {
  ncclComm_t const communicator = MakeCommunicator();
  options_.symmetric_across = communicator;
  ExpectFlat([&] {
    const commpool_pool pool = Make();
    Good(commpool_pool_reserve(pool, 4 * kMiB));
    Good(commpool_free(Allocate(pool, kMiB)));
    End(pool);
  });
  EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(ThousandEnds, OfRegistrationsAndCommunicators) {
  const commpool_pool pool = Make();
  void* const block = Allocate(pool, kMiB);
  ExpectFlat([&] {
    ncclComm_t const communicator = MakeCommunicator();
    Good(commpool_pool_register_with(pool, communicator));
    Good(commpool_pool_deregister(pool, communicator));
    EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator), ncclSuccess);
  });
  Good(commpool_free(block));
  End(pool);
}

TEST_F(ThousandEnds, OfRegistrars) {
  LibraryOfATest library;
  const commpool_registrar functions = library.Functions();
  const commpool_registrar* const registrars[] = {&functions};
  ExpectFlat([&] {
    const commpool_pool pool = Make();
    void* const block = Allocate(pool, kMiB);
    Good(commpool_pools_add_registrar(&pool, registrars, 1));
    Good(commpool_free(block));
    End(pool);
  });
}

TEST_F(ThousandEnds, OfScopes) {
  const commpool_pool pool = Make();
  for (const commpool_filter filter : {COMMPOOL_FILTER_THREAD, COMMPOOL_FILTER_STREAM, COMMPOOL_FILTER_PROCESS}) {
    SCOPED_TRACE(filter);
    ExpectFlat([&] {
      commpool_scope_options options;
      commpool_scope_options_init(&options);
      options.filter = filter;
      commpool_scope scope = 0;
      void* block = nullptr;
      Good(commpool_scope_begin(pool, &options, &scope));
      Good(commpool_allocate(0, kMiB, nullptr, &block));
      Good(commpool_scope_end(scope));
      Good(commpool_free(block));
    });
  }
  End(pool);
}

TEST_F(ThousandEnds, OfCapturesAndTheirGraphs) {
  CUstream const stream = MakeStream();
  const commpool_pool pool = Make();
  ExpectFlat([&] {
    commpool_capture capture = 0;
    CUgraph graph = nullptr;
    EXPECT_EQ(driver().cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    Good(commpool_capture_begin(pool, stream, &capture));
    Good(commpool_free(Allocate(pool, kMiB, stream)));
    Good(commpool_capture_end(capture));
    EXPECT_EQ(driver().cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
    Good(commpool_pool_trim(pool, 0, nullptr));
  });
  End(pool);
  EndStream(stream);
}

TEST_F(ThousandEnds, OfStreams) {
  const commpool_pool pool = Make();
  for (const bool promised : {false, true}) {
    SCOPED_TRACE(promised);
    ExpectFlat([&] {
      CUstream const stream = MakeStream();
      if (promised) Good(commpool_promise_stream(stream));
      void* const large = Allocate(pool, 3 * kMiB, stream);
      void* const small = Allocate(pool, 1000);
      Good(commpool_record_stream(small, stream));
      Good(commpool_free(large));
      Good(commpool_free(small));
      if (promised) Good(commpool_release_stream(stream));
      EndStream(stream);
      EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
    });
  }
  End(pool);
}

TEST_F(ThousandEnds, OfThreads) {
  const commpool_pool pool = Make();
  ExpectFlat([&] {
    std::thread([&] {
      const ContextGuard current(driver(), context_);
      for (CUstream const stream : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        Good(commpool_free(Allocate(pool, 3 * kMiB, stream)));
        Good(commpool_free(Allocate(pool, 1000, stream)));
      }
    }).join();
    EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  });
  End(pool);
}

TEST_F(ThousandEnds, OfHolders) {
  ExpectFlat([] {
    commpool_holder_options options;
    commpool_holder_options_init(&options);
    commpool_holder holder = 0;
    Good(commpool_add_holder(&options, &holder));
    Good(commpool_remove_holder(holder));
  });
}

TEST_F(ThousandEnds, OfSleeps) {
  const commpool_pool pool = Make();
  void* const block = Allocate(pool, kMiB);
  for (const commpool_kept_in kept_in : {COMMPOOL_KEPT_IN_PINNED, COMMPOOL_KEPT_IN_PAGEABLE}) {
    SCOPED_TRACE(kept_in);
    ExpectFlat([&] {
      commpool_sleep_options options;
      commpool_sleep_options_init(&options);
      options.kept_in = kept_in;
      options.retain = 1;
      Good(commpool_pools_sleep_keeping(&pool, 1, &options));
      Good(commpool_pool_wake(pool, COMMPOOL_GRAPHS_REFUSED));
    });
  }
  Good(commpool_free(block));
  End(pool);
}

TEST_F(ThousandEnds, OfRecordings) {
  std::string folder = "/tmp/commpool-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const commpool_pool pool = Make();
  ExpectFlat([&] {
    commpool_record_options options;
    commpool_record_options_init(&options);
    options.directory = folder.c_str();
    options.limit_bytes = kMiB;
    Good(commpool_record(&options));
    Good(commpool_free(Allocate(pool, 3 * kMiB)));
    Good(commpool_record(nullptr));
    std::filesystem::remove_all(folder);
  });
  End(pool);
}

}  // namespace
}  // namespace commpool::internal::testing
