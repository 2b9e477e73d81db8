// The copies that a pool keeps: a program reads them while the pool sleeps, in each place; retains them; names the
// blocks to keep; and somebody changes the files.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class Kept : public PoolTest {
 protected:
  Kept() : pool_(Create(Configured("keeper"))) {
    std::string pattern = ::testing::TempDir() + "/kept-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~Kept() override {
    static_cast<void>(runtime().DestroyPool(pool_));
    std::filesystem::remove_all(directory_);
  }

  Pool& pool() { return Get(pool_); }
  CUdeviceptr Allocate(uint64_t bytes, uint8_t value) {
    const CUdeviceptr block = PoolTest::Allocate(pool_, bytes);
    Fill(nullptr, block, bytes, value);
    return block;
  }
  SleepRequest Keeping(KeptIn in = KeptIn::kPinned) {
    return {.keep = Keep::kHost, .copies = {.in = in, .directory = directory_}};
  }
  SleepRequest Retaining(const std::vector<uint64_t>& constants = {}) {
    SleepRequest request = Keeping();
    request.copies.retain = true;
    request.copies.constants = constants;
    return request;
  }
  const std::byte* Read(CUdeviceptr block, uint64_t bytes) { return pool().segments().kept.Find(block, bytes).value(); }
  bool Holds(CUdeviceptr block, uint64_t bytes, uint8_t value) {
    const std::byte* const kept = Read(block, bytes);
    return std::all_of(kept, kept + bytes, [&](std::byte byte) { return byte == std::byte(value); });
  }
  uint64_t KeptBytes() { return pool().Statistics().kept_bytes; }
  Status WhyNotKept(CUdeviceptr block, uint64_t bytes) { return pool().segments().kept.Find(block, bytes).status(); }
  Status Sleep(const SleepRequest& request) { return SleepAlone(pool(), request); }
  Status Wake() { return WakeAlone(pool()); }
  Status SleepAndWake(const SleepRequest& request) {
    const Status slept = Sleep(request);
    return slept.ok() ? Wake() : slept;
  }
  // Within a limit of the process.
  Status SleepWithin(__rlimit_resource resource, rlim_t most, const SleepRequest& request) {
    rlimit before = {};
    EXPECT_EQ(getrlimit(resource, &before), 0);
    const rlimit lower = {most, before.rlim_max};
    EXPECT_EQ(setrlimit(resource, &lower), 0);
    const Status slept = Sleep(request);
    EXPECT_EQ(setrlimit(resource, &before), 0);
    return slept;
  }
  std::vector<std::filesystem::path> Files() const {
    return {std::filesystem::directory_iterator(directory_), std::filesystem::directory_iterator()};
  }

  PoolHandle pool_;
  std::string directory_;
};

TEST_F(Kept, IsReadWhileThePoolSleepsInEachPlace) {
  // Two neighbours, one block alone, and a block of more than one part of a file.
  const CUdeviceptr large = Allocate(37 * kMiB + 512, 1);
  const CUdeviceptr gap = Allocate(3 * kMiB, 2);
  const CUdeviceptr after = Allocate(5 * kMiB + 512, 3);
  const CUdeviceptr small = Allocate(700, 4);
  Free(gap);
  for (const KeptIn in : {KeptIn::kPinned, KeptIn::kPageable, KeptIn::kFiles}) {
    ExpectOk(Sleep(Keeping(in)));
    EXPECT_GE(KeptBytes(), 42 * kMiB);
    EXPECT_TRUE(Holds(large, 37 * kMiB + 512, 1));
    EXPECT_TRUE(Holds(large + 20 * kMiB, kMiB, 1)) << "a part of it";
    EXPECT_TRUE(Holds(after, 5 * kMiB + 512, 3));
    EXPECT_TRUE(Holds(small, 700, 4));
    EXPECT_EQ(Files().size(), in == KeptIn::kFiles ? 3u : 0u) << "one for each segment with live blocks";
    ExpectOk(Wake());
    EXPECT_EQ(KeptBytes(), 0u);
    EXPECT_EQ(Files().size(), 0u);
    ExpectBytes(nullptr, large, 37 * kMiB + 512, 1);
    ExpectBytes(nullptr, after, 5 * kMiB + 512, 3);
    ExpectBytes(nullptr, small, 700, 4);
  }
}

TEST_F(Kept, OfNamedBlocksAloneDiscardsTheOthers) {
  const CUdeviceptr named = Allocate(4 * kMiB, 1);
  const CUdeviceptr other = Allocate(4 * kMiB, 2);
  SleepRequest request = Keeping();
  request.copies.all = false;
  request.copies.blocks = {named + kMiB};  // anywhere in it
  ExpectOk(Sleep(request));
  EXPECT_EQ(KeptBytes(), 4 * kMiB);
  EXPECT_TRUE(Holds(named, 4 * kMiB, 1));
  ExpectFailure(WhyNotKept(other, kMiB), StatusCode::kNotFound, "were discarded");
  ExpectFailure(WhyNotKept(named, 5 * kMiB), StatusCode::kNotFound, "were discarded, or in no block");
  ExpectOk(Wake());
  ExpectBytes(nullptr, named, 4 * kMiB, 1);
}

TEST_F(Kept, IsGoneOnceThePoolIsAwakeUnlessItIsRetained) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAndWake(Keeping()));
  ExpectFailure(WhyNotKept(block, kMiB), StatusCode::kFailedPrecondition, "it is awake");
  ExpectOk(Sleep(Keeping()));
  pool().segments().kept.SetRetain(Retain::kCopies);  // any time before it wakes
  const std::byte* const place = Read(block, kMiB);
  ExpectOk(Wake());
  EXPECT_EQ(Read(block, kMiB), place);
  EXPECT_TRUE(Holds(block, kMiB, 1));
  EXPECT_EQ(KeptBytes(), 4 * kMiB);
  ExpectOk(Sleep({}));
  EXPECT_EQ(KeptBytes(), 0u) << "discarded";
  ExpectOk(Wake());
}

TEST_F(Kept, RetainedIsRenewedAtTheSameAddress) {
  const CUdeviceptr first = Allocate(4 * kMiB, 1);
  const CUdeviceptr small = Allocate(1000, 2);
  ExpectOk(Sleep(Retaining()));
  const std::byte* const places[] = {Read(first, kMiB), Read(small, 1000)};
  ExpectOk(Wake());
  Fill(nullptr, first, 4 * kMiB, 5);
  const CUdeviceptr later = Allocate(6 * kMiB, 3);
  EXPECT_TRUE(Holds(first, 4 * kMiB, 1)) << "as it was when the pool slept";
  ExpectOk(Sleep(Retaining()));
  EXPECT_EQ(Read(first, kMiB), places[0]);
  EXPECT_EQ(Read(small, 1000), places[1]);
  EXPECT_TRUE(Holds(first, 4 * kMiB, 5));
  EXPECT_TRUE(Holds(later, 6 * kMiB, 3));
  ExpectOk(Wake());
  ExpectBytes(nullptr, first, 4 * kMiB, 5);
  ExpectBytes(nullptr, later, 6 * kMiB, 3);
}

TEST_F(Kept, RetainedGoesWithItsBlockAndServesNoLaterBlockThere) {
  const CUdeviceptr small = Allocate(1000, 2);
  const CUdeviceptr large = Allocate(4 * kMiB, 2);
  const CUdeviceptr asleep = Allocate(4 * kMiB, 2);
  ExpectOk(Sleep(Retaining()));
  Free(asleep);
  ExpectFailure(WhyNotKept(asleep, 1000), StatusCode::kNotFound, "was freed");
  ExpectOk(Wake());
  for (const CUdeviceptr block : {small, large}) {
    const uint64_t bytes = block == small ? 1000 : 4 * kMiB;
    Free(block);
    ASSERT_EQ(Allocate(bytes, 3), block);
    ExpectFailure(WhyNotKept(block, 1000), StatusCode::kNotFound, "was freed");
  }
  ExpectFailure(WhyNotKept(asleep, 1000), StatusCode::kNotFound, "has kept no");
  ExpectOk(Sleep(Retaining()));
  EXPECT_TRUE(Holds(small, 1000, 3));
  ExpectOk(Wake());
  FreeAll({small, large});
  EXPECT_EQ(pool().Statistics().requested_bytes.current, 0u);
}

TEST_F(Kept, ConstantsAreCopiedOnceAsLongAsTheyLive) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const CUdeviceptr constant = Allocate(4 * kMiB, 1);
  const auto copies = [&] {
    const uint64_t before = CallCount("cuMemcpyAsync");
    ExpectOk(Sleep(Retaining({constant})));
    const uint64_t copied = CallCount("cuMemcpyAsync") - before;
    EXPECT_TRUE(Holds(constant, 4 * kMiB, 1));
    ExpectOk(Wake());
    ExpectBytes(nullptr, constant, 4 * kMiB, 1);
    return copied;
  };
  EXPECT_EQ(copies(), 1u);
  EXPECT_EQ(copies(), 0u);
  Free(constant);
  ASSERT_EQ(Allocate(4 * kMiB, 1), constant);
  EXPECT_EQ(copies(), 1u) << "another block is there now";
  pool().segments().kept.SetRetain(Retain::kNothing);
  EXPECT_EQ(copies(), 0u);  // the request retains again
}

// A copy from before the promise may be older than the block.
TEST_F(Kept, ConstantsAreCopiedOnceAfterTheyWereNamed) {
  const CUdeviceptr weights = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAndWake(Retaining()));
  Fill(nullptr, weights, 4 * kMiB, 2);
  ExpectOk(Sleep(Retaining({weights})));
  EXPECT_TRUE(Holds(weights, 4 * kMiB, 2));
  ExpectOk(Wake());
  ExpectBytes(nullptr, weights, 4 * kMiB, 2);
}

TEST_F(Kept, RetainedIsGoneAfterASleepThatFailed) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const CUdeviceptr freed = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAndWake(Retaining()));
  Free(freed);
  const CUdeviceptr block = Allocate(4 * kMiB, 2);
  ASSERT_EQ(block, freed);
  {
    const InjectedFault fault({.call = "cuCtxSynchronize", .result = CUDA_ERROR_INVALID_VALUE});
    EXPECT_FALSE(Sleep(Retaining()).ok());
  }
  EXPECT_FALSE(pool().segments().kept.Find(block, kMiB).ok()) << "that would be the freed block's";
  ExpectOk(Sleep(Retaining({block})));
  EXPECT_TRUE(Holds(block, 4 * kMiB, 2));
  ExpectFailure(WhyNotKept(block, UINT64_MAX), StatusCode::kNotFound, "has kept no");
  ExpectOk(Wake());
  ExpectBytes(nullptr, block, 4 * kMiB, 2);
}

TEST_F(Kept, IsRetainedUntilTheProgramSaysOtherwise) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  pool().segments().kept.SetRetain(Retain::kCopies);
  for (int round = 0; round < 2; ++round) {
    ExpectOk(SleepAndWake(Keeping()));
    EXPECT_TRUE(Holds(block, 4 * kMiB, 1));
  }
  ExpectOk(SleepAndWake(Keeping(KeptIn::kFiles)));
  EXPECT_EQ(Files().size(), 0u) << "files go as the pool wakes";
  EXPECT_EQ(KeptBytes(), 0u);
  pool().segments().kept.SetRetain(Retain::kNothing);
  ExpectOk(SleepAndWake(Keeping()));
  ExpectFailure(WhyNotKept(block, kMiB), StatusCode::kFailedPrecondition, "it is awake");
}

// Blocks that were first kept together share memory of the host, which goes with the last of them.
TEST_F(Kept, CountsWhatIsHeldForBlocksThatWereFreed) {
  const CUdeviceptr freed = Allocate(4 * kMiB, 1);
  const CUdeviceptr survivor = Allocate(4 * kMiB, 2);
  ExpectOk(SleepAndWake(Retaining()));
  Free(freed);
  ExpectOk(Sleep(Retaining()));
  EXPECT_EQ(KeptBytes(), 8 * kMiB);
  ExpectOk(Wake());
  Free(survivor);
  ExpectOk(Sleep(Retaining()));
  EXPECT_EQ(KeptBytes(), 0u);
  ExpectOk(Wake());
}

TEST_F(Kept, InFilesIsNotRetained) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(Sleep(Keeping(KeptIn::kFiles)));
  ExpectOk(WakeAlone(pool(), {.retain = Retain::kCopies}));
  ExpectFailure(WhyNotKept(block, kMiB), StatusCode::kFailedPrecondition, "it is awake");
}

TEST_F(Kept, AFullDiskLeavesThePoolAwakeAndWhole) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectFailure(SleepWithin(RLIMIT_FSIZE, kMiB, Keeping(KeptIn::kFiles)), StatusCode::kOutOfMemory, "File too large");
  EXPECT_TRUE(pool().basis().life.open());
  EXPECT_EQ(Files().size(), 0u);
  ExpectBytes(nullptr, block, 4 * kMiB, 1);
}

// The emulator has only those pages of the block that were written.
TEST_F(Kept, AHostWithoutAddressesLeavesThePoolAwakeAndWhole) {
  const CUdeviceptr block = PoolTest::Allocate(pool_, 16 * kGiB);
  Fill(nullptr, block, kMiB, 1);
  Synchronize();
  std::ifstream pages("/proc/self/statm");
  uint64_t count = 0;
  pages >> count;
  const rlim_t most = count * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + 8 * kGiB;
  ExpectFailure(SleepWithin(RLIMIT_AS, most, Keeping(KeptIn::kPageable)), StatusCode::kOutOfMemory,
                "to keep blocks in");
  EXPECT_TRUE(pool().basis().life.open());
  ExpectBytes(nullptr, block, kMiB, 1);
}

TEST_F(Kept, AFileThatSomebodyChangedLeavesThePoolAsleep) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(Sleep(Keeping(KeptIn::kFiles)));
  std::fstream(Files().at(0), std::ios::in | std::ios::out | std::ios::binary).put('x');
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "was changed by somebody");
  ExpectFailure(WhyNotKept(block, kMiB), StatusCode::kFailedPrecondition, "was changed by somebody");
  std::filesystem::resize_file(Files().at(0), kMiB);
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "has 1 MiB of 4 MiB");
  std::filesystem::remove(Files().at(0));
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "is gone");
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_GT(pool().Statistics().asleep_bytes, 0u);
  Free(block);
  ExpectOk(Wake());  // nobody misses the bytes of a freed block
  ExpectOk(pool().Close());
}

TEST_F(Kept, ThreadsThatAllocateAndReadMeanwhileAreServedOrTold) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  std::atomic<bool> done{false};
  const auto told = [](const Status& status) {
    return status.ok() || status.code() == StatusCode::kFailedPrecondition;
  };
  const auto allocate = [&] {
    const ContextGuard current(driver(), context());
    while (!done) {
      const Result<CUdeviceptr> served = TryAllocate(pool_, 1000);
      EXPECT_TRUE(told(served.status())) << served.status().message();
      if (served.ok()) Free(*served);
    }
  };
  const auto read = [&] {
    while (!done) EXPECT_TRUE(told(pool().segments().kept.Find(block, kMiB).status()));
  };
  const auto sleep = [&] {
    while (!done) EXPECT_TRUE(told(Sleep(Keeping())));
  };
  std::thread threads[] = {std::thread(allocate), std::thread(allocate), std::thread(read), std::thread(sleep)};
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(told(Sleep(Keeping())));
    EXPECT_TRUE(told(Wake()));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  if (pool().basis().life.asleep()) ExpectOk(Wake());
  ExpectBytes(nullptr, block, 4 * kMiB, 1);
  Free(block);
  EXPECT_EQ(pool().Statistics().allocated_blocks.current, 0u);
}

// The sleep has begun, and waits for the device.
TEST_F(Kept, APoolThatIsDestroyedAsItFallsAsleepStaysAwake) {
  COMMPOOL_REQUIRE_EMULATOR("a kernel waits for the test");
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  const std::shared_ptr<Pool> held = runtime().pools().Find(pool_).value();
  const TestStream stream;
  Synchronize();
  HeldWork work(driver(), stream, block);
  Status slept;
  std::thread sleeper([&] { slept = SleepAlone(*held, Keeping()); });
  while (!held->basis().life.asleep()) std::this_thread::yield();
  std::thread destroyer([&] { Destroy(pool_); });
  while (!held->basis().life.destroyed()) std::this_thread::yield();
  work.End();
  sleeper.join();
  destroyer.join();
  ExpectFailure(slept, StatusCode::kFailedPrecondition, "was destroyed");
  EXPECT_EQ(held->Statistics().kept_bytes, 0u);
  EXPECT_EQ(held->Statistics().asleep_bytes, 0u);
  ExpectBytes(nullptr, block + 512, 4 * kMiB - 512, 1);  // a block outlives its pool
}

TEST_F(Kept, ADeviceThatIsFullOnWakingIsToldWithItsHolders) {
  const CUdeviceptr block = Allocate(64 * kMiB, 1);
  const uint64_t reserved = pool().Statistics().reserved_bytes.current;
  ExpectOk(Sleep(Keeping()));
  runtime().devices().Get(0).value()->account().SetLimit(reserved);
  const CUdeviceptr taken = PoolTest::Allocate(Create(Configured("the_other")), 64 * kMiB);
  const Status full = Wake();
  ExpectFailure(full, StatusCode::kOutOfMemory, "waking 64 MiB");
  ExpectFailure(full, StatusCode::kOutOfMemory, "the_other");
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_TRUE(Holds(block, 64 * kMiB, 1)) << "what was kept is whole";
  Free(taken);
  ExpectOk(Wake());
  ExpectBytes(nullptr, block, 64 * kMiB, 1);
}

}  // namespace
}  // namespace commpool::internal::testing
