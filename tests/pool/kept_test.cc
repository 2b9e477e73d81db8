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
#include "tools/common/pool_invariants.h"
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
    const CUdeviceptr block = runtime().AllocateFrom(pool_, bytes, nullptr).value();
    Fill(nullptr, block, bytes, value);
    return block;
  }
  SleepRequest Keeping(KeptIn in = KeptIn::kPinned) {
    return {.keep = Keep::kHost, .copies = {.in = in, .directory = directory_}};
  }
  SleepRequest Retaining() {
    SleepRequest request = Keeping();
    request.copies.retain = true;
    return request;
  }
  const std::byte* Read(CUdeviceptr block, uint64_t bytes) { return pool().segments().kept.Find(block, bytes).value(); }
  bool Holds(CUdeviceptr block, uint64_t bytes, uint8_t value) {
    const std::byte* const kept = Read(block, bytes);
    return std::all_of(kept, kept + bytes, [&](std::byte byte) { return byte == std::byte(value); });
  }
  uint64_t WrongBytes(CUdeviceptr address, uint64_t bytes, uint8_t value) {
    uint64_t wrong = 0;
    Compare(nullptr, address, bytes, value, &wrong);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    return wrong;
  }
  std::vector<std::filesystem::path> Files() const {
    return {std::filesystem::directory_iterator(directory_), std::filesystem::directory_iterator()};
  }
  void Free(std::initializer_list<CUdeviceptr> blocks) {
    for (const CUdeviceptr block : blocks) ExpectOk(runtime().Free(block));
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
  Free({gap});
  for (const KeptIn in : {KeptIn::kPinned, KeptIn::kPageable, KeptIn::kFiles}) {
    ExpectOk(SleepAlone(pool(), Keeping(in)));
    EXPECT_GE(pool().Statistics().kept_bytes, 42 * kMiB);
    EXPECT_TRUE(Holds(large, 37 * kMiB + 512, 1));
    EXPECT_TRUE(Holds(large + 20 * kMiB, kMiB, 1)) << "a part of it";
    EXPECT_TRUE(Holds(after, 5 * kMiB + 512, 3));
    EXPECT_TRUE(Holds(small, 700, 4));
    EXPECT_EQ(Files().size(), in == KeptIn::kFiles ? 3u : 0u) << "one for each segment with live blocks";
    ExpectOk(WakeAlone(pool()));
    EXPECT_EQ(pool().Statistics().kept_bytes, 0u);
    EXPECT_EQ(Files().size(), 0u);
    EXPECT_EQ(WrongBytes(large, 37 * kMiB + 512, 1), 0u);
    EXPECT_EQ(WrongBytes(after, 5 * kMiB + 512, 3), 0u);
    EXPECT_EQ(WrongBytes(small, 700, 4), 0u);
  }
  Free({large, after, small});
}

TEST_F(Kept, OfNamedBlocksAloneDiscardsTheOthers) {
  const CUdeviceptr named = Allocate(4 * kMiB, 1);
  const CUdeviceptr other = Allocate(4 * kMiB, 2);
  SleepRequest request = Keeping();
  request.copies.all = false;
  request.copies.blocks = {named + kMiB};  // anywhere in it
  ExpectOk(SleepAlone(pool(), request));
  EXPECT_EQ(pool().Statistics().kept_bytes, 4 * kMiB);
  EXPECT_TRUE(Holds(named, 4 * kMiB, 1));
  ExpectFailure(pool().segments().kept.Find(other, kMiB).status(), StatusCode::kNotFound, "were discarded");
  ExpectFailure(pool().segments().kept.Find(named, 5 * kMiB).status(), StatusCode::kNotFound,
                "has kept no 5 MiB there");
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(named, 4 * kMiB, 1), 0u);
  Free({named, other});
}

TEST_F(Kept, IsGoneOnceThePoolIsAwakeUnlessItIsRetained) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAlone(pool(), Keeping()));
  ExpectOk(WakeAlone(pool()));
  ExpectFailure(pool().segments().kept.Find(block, kMiB).status(), StatusCode::kFailedPrecondition, "it is awake");
  ExpectOk(SleepAlone(pool(), Keeping()));
  pool().segments().kept.SetRetain(Retain::kCopies);  // any time before it wakes
  const std::byte* const place = Read(block, kMiB);
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(Read(block, kMiB), place);
  EXPECT_TRUE(Holds(block, kMiB, 1));
  EXPECT_EQ(pool().Statistics().kept_bytes, 4 * kMiB);
  ExpectOk(SleepAlone(pool(), {}));
  EXPECT_EQ(pool().Statistics().kept_bytes, 0u) << "discarded";
  ExpectOk(WakeAlone(pool()));
  Free({block});
}

TEST_F(Kept, RetainedIsRenewedAtTheSameAddress) {
  const CUdeviceptr first = Allocate(4 * kMiB, 1);
  const CUdeviceptr small = Allocate(1000, 2);
  ExpectOk(SleepAlone(pool(), Retaining()));
  const std::byte* const places[] = {Read(first, kMiB), Read(small, 1000)};
  ExpectOk(WakeAlone(pool()));
  Fill(nullptr, first, 4 * kMiB, 5);
  const CUdeviceptr later = Allocate(6 * kMiB, 3);
  EXPECT_TRUE(Holds(first, 4 * kMiB, 1)) << "as it was when the pool slept";
  ExpectOk(SleepAlone(pool(), Retaining()));
  EXPECT_EQ(Read(first, kMiB), places[0]);
  EXPECT_EQ(Read(small, 1000), places[1]);
  EXPECT_TRUE(Holds(first, 4 * kMiB, 5));
  EXPECT_TRUE(Holds(later, 6 * kMiB, 3));
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(first, 4 * kMiB, 5), 0u);
  EXPECT_EQ(WrongBytes(later, 6 * kMiB, 3), 0u);
  Free({first, small, later});
}

TEST_F(Kept, RetainedGoesWithItsBlockAndServesNoLaterBlockThere) {
  const CUdeviceptr small = Allocate(1000, 2);
  const CUdeviceptr large = Allocate(4 * kMiB, 2);
  const CUdeviceptr asleep = Allocate(4 * kMiB, 2);
  ExpectOk(SleepAlone(pool(), Retaining()));
  ExpectOk(runtime().Free(asleep));
  ExpectFailure(pool().segments().kept.Find(asleep, 1000).status(), StatusCode::kNotFound, "was freed");
  ExpectOk(WakeAlone(pool()));
  for (const CUdeviceptr block : {small, large}) {
    const uint64_t bytes = block == small ? 1000 : 4 * kMiB;
    ExpectOk(runtime().Free(block));
    ASSERT_EQ(Allocate(bytes, 3), block);
    ExpectFailure(pool().segments().kept.Find(block, 1000).status(), StatusCode::kNotFound, "was freed");
  }
  ExpectFailure(pool().segments().kept.Find(asleep, 1000).status(), StatusCode::kNotFound, "has kept no");
  ExpectOk(SleepAlone(pool(), Retaining()));
  EXPECT_TRUE(Holds(small, 1000, 3));
  ExpectOk(WakeAlone(pool()));
  Free({small, large});
  EXPECT_EQ(pool().Statistics().requested_bytes.current, 0u);
}

TEST_F(Kept, ConstantsAreCopiedOnceAsLongAsTheyLive) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const CUdeviceptr constant = Allocate(4 * kMiB, 1);
  SleepRequest request = Retaining();
  request.copies.constants = {constant};
  const auto copies = [&] {
    const uint64_t before = CallCount("cuMemcpyAsync");
    ExpectOk(SleepAlone(pool(), request));
    const uint64_t copied = CallCount("cuMemcpyAsync") - before;
    EXPECT_TRUE(Holds(constant, 4 * kMiB, 1));
    ExpectOk(WakeAlone(pool()));
    EXPECT_EQ(WrongBytes(constant, 4 * kMiB, 1), 0u);
    return copied;
  };
  EXPECT_EQ(copies(), 1u);
  EXPECT_EQ(copies(), 0u);
  Free({constant});
  ASSERT_EQ(Allocate(4 * kMiB, 1), constant);
  EXPECT_EQ(copies(), 1u) << "another block is there now";
  pool().segments().kept.SetRetain(Retain::kNothing);
  EXPECT_EQ(copies(), 0u);  // the request retains again
  Free({constant});
}

// A copy from before the promise may be older than the block.
TEST_F(Kept, ConstantsAreCopiedOnceAfterTheyWereNamed) {
  const CUdeviceptr weights = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAlone(pool(), Retaining()));
  ExpectOk(WakeAlone(pool()));
  Fill(nullptr, weights, 4 * kMiB, 2);
  SleepRequest request = Retaining();
  request.copies.constants = {weights};
  ExpectOk(SleepAlone(pool(), request));
  EXPECT_TRUE(Holds(weights, 4 * kMiB, 2));
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(weights, 4 * kMiB, 2), 0u);
  Free({weights});
}

TEST_F(Kept, RetainedIsGoneAfterASleepThatFailed) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const CUdeviceptr freed = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAlone(pool(), Retaining()));
  ExpectOk(WakeAlone(pool()));
  Free({freed});
  const CUdeviceptr block = Allocate(4 * kMiB, 2);
  ASSERT_EQ(block, freed);
  {
    const InjectedFault fault({.call = "cuCtxSynchronize", .result = CUDA_ERROR_INVALID_VALUE});
    EXPECT_FALSE(SleepAlone(pool(), Retaining()).ok());
  }
  EXPECT_FALSE(pool().segments().kept.Find(block, kMiB).ok()) << "that would be the freed block's";
  SleepRequest request = Retaining();
  request.copies.constants = {block};
  ExpectOk(SleepAlone(pool(), request));
  EXPECT_TRUE(Holds(block, 4 * kMiB, 2));
  ExpectFailure(pool().segments().kept.Find(block, UINT64_MAX).status(), StatusCode::kNotFound, "has kept no");
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(block, 4 * kMiB, 2), 0u);
  Free({block});
}

TEST_F(Kept, IsRetainedUntilTheProgramSaysOtherwise) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  pool().segments().kept.SetRetain(Retain::kCopies);
  for (int round = 0; round < 2; ++round) {
    ExpectOk(SleepAlone(pool(), Keeping()));
    ExpectOk(WakeAlone(pool()));
    EXPECT_TRUE(Holds(block, 4 * kMiB, 1));
  }
  ExpectOk(SleepAlone(pool(), Keeping(KeptIn::kFiles)));
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(Files().size(), 0u) << "files go as the pool wakes";
  EXPECT_EQ(pool().Statistics().kept_bytes, 0u);
  pool().segments().kept.SetRetain(Retain::kNothing);
  ExpectOk(SleepAlone(pool(), Keeping()));
  ExpectOk(WakeAlone(pool()));
  ExpectFailure(pool().segments().kept.Find(block, kMiB).status(), StatusCode::kFailedPrecondition, "it is awake");
  Free({block});
}

// Blocks that were first kept together share memory of the host, which goes with the last of them.
TEST_F(Kept, CountsWhatIsHeldForBlocksThatWereFreed) {
  const CUdeviceptr freed = Allocate(4 * kMiB, 1);
  const CUdeviceptr survivor = Allocate(4 * kMiB, 2);
  ExpectOk(SleepAlone(pool(), Retaining()));
  ExpectOk(WakeAlone(pool()));
  Free({freed});
  ExpectOk(SleepAlone(pool(), Retaining()));
  EXPECT_EQ(pool().Statistics().kept_bytes, 8 * kMiB);
  ExpectOk(WakeAlone(pool()));
  Free({survivor});
  ExpectOk(SleepAlone(pool(), Retaining()));
  EXPECT_EQ(pool().Statistics().kept_bytes, 0u);
  ExpectOk(WakeAlone(pool()));
}

TEST_F(Kept, InFilesIsNotRetained) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAlone(pool(), Keeping(KeptIn::kFiles)));
  ExpectOk(WakeAlone(pool(), {.retain = Retain::kCopies}));
  ExpectFailure(pool().segments().kept.Find(block, kMiB).status(), StatusCode::kFailedPrecondition, "it is awake");
  Free({block});
}

TEST_F(Kept, AFullDiskLeavesThePoolAwakeAndWhole) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {kMiB, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status full = SleepAlone(pool(), Keeping(KeptIn::kFiles));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectFailure(full, StatusCode::kOutOfMemory, "File too large");
  EXPECT_TRUE(pool().basis().life.open());
  EXPECT_EQ(Files().size(), 0u);
  EXPECT_EQ(WrongBytes(block, 4 * kMiB, 1), 0u);
  Free({block});
}

// The emulator has only those pages of the block that were written.
TEST_F(Kept, AHostWithoutAddressesLeavesThePoolAwakeAndWhole) {
  const CUdeviceptr block = runtime().AllocateFrom(pool_, 16 * kGiB, nullptr).value();
  Fill(nullptr, block, kMiB, 1);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream pages("/proc/self/statm");
  uint64_t count = 0;
  pages >> count;
  const rlimit small = {count * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + 8 * kGiB, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  const Status full = SleepAlone(pool(), Keeping(KeptIn::kPageable));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ExpectFailure(full, StatusCode::kOutOfMemory, "to keep blocks in");
  EXPECT_TRUE(pool().basis().life.open());
  EXPECT_EQ(WrongBytes(block, kMiB, 1), 0u);
  Free({block});
}

TEST_F(Kept, AFileThatSomebodyChangedLeavesThePoolAsleep) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  ExpectOk(SleepAlone(pool(), Keeping(KeptIn::kFiles)));
  std::fstream(Files().at(0), std::ios::in | std::ios::out | std::ios::binary).put('x');
  ExpectFailure(WakeAlone(pool()), StatusCode::kFailedPrecondition, "was changed by somebody");
  ExpectFailure(pool().segments().kept.Find(block, kMiB).status(), StatusCode::kFailedPrecondition,
                "was changed by somebody");
  std::filesystem::resize_file(Files().at(0), kMiB);
  ExpectFailure(WakeAlone(pool()), StatusCode::kFailedPrecondition, "has 1 MiB of 4 MiB");
  std::filesystem::remove(Files().at(0));
  ExpectFailure(WakeAlone(pool()), StatusCode::kFailedPrecondition, "is gone");
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_GT(pool().Statistics().asleep_bytes, 0u);
  Free({block});
  ExpectOk(WakeAlone(pool()));  // nobody misses the bytes of a freed block
  ExpectOk(pool().Close());
}

TEST_F(Kept, ThreadsThatAllocateAndReadMeanwhileAreServedOrTold) {
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  std::atomic<bool> done{false};
  const auto told = [](const Status& status) {
    return status.ok() || status.code() == StatusCode::kFailedPrecondition;
  };
  const auto allocate = [&] {
    const ContextGuard current(driver(), runtime().devices().Get(0).value()->context());
    while (!done) {
      const Result<CUdeviceptr> served = runtime().AllocateFrom(pool_, 1000, nullptr);
      EXPECT_TRUE(told(served.status())) << served.status().message();
      if (served.ok()) ExpectOk(runtime().Free(*served));
    }
  };
  const auto read = [&] {
    while (!done) EXPECT_TRUE(told(pool().segments().kept.Find(block, kMiB).status()));
  };
  const auto sleep = [&] {
    while (!done) EXPECT_TRUE(told(SleepAlone(pool(), Keeping())));
  };
  std::thread threads[] = {std::thread(allocate), std::thread(allocate), std::thread(read), std::thread(sleep)};
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(told(SleepAlone(pool(), Keeping())));
    EXPECT_TRUE(told(WakeAlone(pool())));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  if (pool().basis().life.asleep()) ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(block, 4 * kMiB, 1), 0u);
  Free({block});
  CheckInvariants(pool());
  EXPECT_EQ(pool().Statistics().allocated_blocks.current, 0u);
}

// The sleep has begun, and waits for the device.
TEST_F(Kept, APoolThatIsDestroyedAsItFallsAsleepStaysAwake) {
  COMMPOOL_REQUIRE_EMULATOR("a kernel waits for the test");
  const CUdeviceptr block = Allocate(4 * kMiB, 1);
  const std::shared_ptr<Pool> held = runtime().pools().Find(pool_).value();
  const TestStream stream;
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  HeldWork work(driver(), stream.get(), block);
  Status slept;
  std::thread sleeper([&] { slept = SleepAlone(*held, Keeping()); });
  while (!held->basis().life.asleep()) std::this_thread::yield();
  std::thread destroyer([&] { ExpectOk(runtime().DestroyPool(pool_)); });
  while (!held->basis().life.destroyed()) std::this_thread::yield();
  work.End();
  sleeper.join();
  destroyer.join();
  ExpectFailure(slept, StatusCode::kFailedPrecondition, "was destroyed");
  EXPECT_EQ(held->Statistics().kept_bytes, 0u);
  EXPECT_EQ(held->Statistics().asleep_bytes, 0u);
  EXPECT_EQ(WrongBytes(block + 512, 4 * kMiB - 512, 1), 0u) << "a block outlives its pool";
  Free({block});
}

TEST_F(Kept, ADeviceThatIsFullOnWakingIsToldWithItsHolders) {
  const CUdeviceptr block = Allocate(64 * kMiB, 1);
  const uint64_t reserved = pool().Statistics().reserved_bytes.current;
  ExpectOk(SleepAlone(pool(), Keeping()));
  runtime().devices().Get(0).value()->account().SetLimit(reserved);
  const PoolHandle other = Create(Configured("the_other"));
  const CUdeviceptr taken = runtime().AllocateFrom(other, 64 * kMiB, nullptr).value();
  const Status full = WakeAlone(pool());
  ExpectFailure(full, StatusCode::kOutOfMemory, "waking 64 MiB");
  ExpectFailure(full, StatusCode::kOutOfMemory, "the_other");
  EXPECT_TRUE(pool().basis().life.asleep());
  EXPECT_TRUE(Holds(block, 64 * kMiB, 1)) << "what was kept is whole";
  Free({taken});
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(WrongBytes(block, 64 * kMiB, 1), 0u);
  Free({block});
}

}  // namespace
}  // namespace commpool::internal::testing
