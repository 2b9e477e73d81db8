// Out of memory starts a search: the pool's own free memory of other streams, free segments of other pools, other
// allocators of the process, then an error that lists the holders. Each emulated device has 64 MiB: BUILD sets it.
#include <latch>
#include <utility>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class MemorySearch : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it fills a small machine"); }

  // Leaves the pool with free memory of `bytes` in one segment.
  void Cache(PoolHandle pool, uint64_t bytes) {
    Free(Allocate(pool, bytes));
    EXPECT_EQ(CountersOf(pool).free_bytes, bytes);
  }
};

TEST_F(MemorySearch, OtherPoolsGiveFreeSegmentsBack) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle needy = Create(Configured("needy"));
  Cache(idle, 40 * kMiB);
  Allocate(needy, 50 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
}

TEST_F(MemorySearch, SegmentsWithLiveBlocksStay) {
  const PoolHandle busy = Create(Configured("busy"));
  const PoolHandle needy = Create(Configured("needy"));
  const CUdeviceptr live = Allocate(busy, 40 * kMiB);
  Fill(nullptr, live, 4096, 7);
  EXPECT_EQ(TryAllocate(needy, 50 * kMiB).status().code(), StatusCode::kOutOfMemory);
  ExpectBytes(nullptr, live, 4096, 7);
}

TEST_F(MemorySearch, PoolsOfOtherDevicesKeepTheirs) {
  const PoolHandle far = Create(Configured("far", 1));
  const PoolHandle needy = Create(Configured("needy"));
  Cache(far, 40 * kMiB);
  EXPECT_EQ(TryAllocate(needy, 100 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Reserved(far), 40 * kMiB);
}

TEST_F(MemorySearch, OwnSegmentsThatAreTooSmallMakeRoomForALargerOne) {
  const PoolHandle pool = Create(Configured("own"));
  Cache(pool, 40 * kMiB);
  Allocate(pool, 60 * kMiB);
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 1u);
}

TEST_F(MemorySearch, OwnMemoryOfAnotherStreamComesBeforeOtherPoolsMemory) {
  const TestStream stream;
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 20 * kMiB);
  Cache(pool, 40 * kMiB);
  Allocate(pool, 30 * kMiB, stream);
  EXPECT_EQ(Reserved(idle), 20 * kMiB);
}

TEST_F(MemorySearch, TheErrorListsEveryPoolOfTheDeviceTheBiggestFirst) {
  const PoolHandle small = Create(Configured("small"));
  const PoolHandle big = Create(Configured("big"));
  const PoolHandle far = Create(Configured("far", 1));
  Allocate(small, 2 * kMiB);
  Allocate(big, 40 * kMiB);
  const std::string message = TryAllocate(small, 50 * kMiB).status().message();
  const size_t big_at = message.find("\n  big ");
  const size_t small_at = message.find("\n  small ");
  ASSERT_NE(big_at, std::string::npos) << message;
  ASSERT_NE(small_at, std::string::npos) << message;
  EXPECT_LT(big_at, small_at);
  EXPECT_EQ(message.find("\n  far "), std::string::npos) << message;
  EXPECT_NE(message.find("no memory for 50 MiB"), std::string::npos) << message;
  EXPECT_NE(message.find("40 MiB", big_at), std::string::npos) << message;
  EXPECT_EQ(CountersOf(small).failed_allocations, 1u);
  EXPECT_EQ(CountersOf(far).failed_allocations, 0u);
}

TEST_F(MemorySearch, TheErrorListsPoolsOfTheSameMemoryAlone) {
  PoolConfiguration pinned = ConfiguredWith({.name = "pinned", .limit_bytes = 4 * kMiB});
  pinned.backing.kind = BackingKind::kPinned;
  const PoolHandle pools[] = {Create(pinned), Create(Configured("of a device"))};
  for (const PoolHandle pool : pools) {
    const std::string message = TryAllocate(pool, 80 * kMiB).status().message();
    EXPECT_EQ(message.find("\n  pinned ") != std::string::npos, pool == pools[0]) << message;
    EXPECT_EQ(message.find("\n  of a device ") != std::string::npos, pool == pools[1]) << message;
  }
}

TEST_F(MemorySearch, TheErrorBeginsWithOneSentence) {
  const PoolHandle named = Create(Configured("gradients"));
  const PoolHandle unnamed = Create(Configured(PoolConfiguration().name.c_str()));
  Allocate(named, 40 * kMiB);
  for (const auto& [pool, title] : {std::pair(named, "pool gradients"), std::pair(unnamed, "pool")}) {
    const std::string sentence = std::string("no memory for 50 MiB in ") + title + " (vmm, device 0): cuMemCreate of ";
    const std::string message = TryAllocate(pool, 50 * kMiB).status().message();
    EXPECT_EQ(message.substr(0, sentence.size()), sentence);
  }
}

TEST_F(MemorySearch, LiveBlocksOfADestroyedPoolAreListedToo) {
  const PoolHandle retired = Create(Configured("retired"));
  const PoolHandle needy = Create(Configured("needy"));
  Allocate(retired, 40 * kMiB);
  Destroy(retired);
  const std::string message = TryAllocate(needy, 50 * kMiB).status().message();
  EXPECT_NE(message.find("\n  retired "), std::string::npos) << message;
}

TEST_F(MemorySearch, ASmallRemainderServesARequestThatUsuallyBringsALargerSegment) {
  const PoolHandle big = Create(Configured("big"));
  const PoolHandle pool = Create(Configured("small"));
  Allocate(big, 54 * kMiB);
  Allocate(pool, 3 * kMiB);
}

class PoolLimit : public MemorySearch {
 protected:
  const PoolHandle pool_ = CreateWith({.name = "limited", .limit_bytes = 4 * kMiB});
};

TEST_F(PoolLimit, BoundsTheSegmentsAndIsNamed) {
  Allocate(pool_, 512 * kKiB);
  ExpectFailure(TryAllocate(pool_, 4 * kMiB).status(), StatusCode::kOutOfMemory, "its limit of 4 MiB");
  EXPECT_LE(CountersOf(pool_).reserved_bytes.peak, 4 * kMiB);
}

TEST_F(PoolLimit, HoldsForReserve) {
  EXPECT_EQ(Get(pool_).mode().Reserve(5 * kMiB).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(Get(pool_).mode().Reserve(1 * kMiB).ok());
}

TEST_F(PoolLimit, ReleasesOwnFreeSegmentsBeforeItRefuses) {
  Cache(pool_, 2 * kMiB);
  Allocate(pool_, 4 * kMiB);
  EXPECT_EQ(Reserved(pool_), 4 * kMiB);
}

TEST_F(PoolLimit, DoesNotTakeOtherPoolsMemory) {
  const PoolHandle idle = Create(Configured("idle"));
  Cache(idle, 20 * kMiB);
  Allocate(pool_, kMiB);
  EXPECT_EQ(TryAllocate(pool_, 4 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Reserved(idle), 20 * kMiB);
}

TEST_F(PoolLimit, ServesWhatFitsAlthoughTheUsualSegmentWouldNot) {
  // 2 MiB requests usually come with a segment of 8 MiB.
  Allocate(pool_, 2 * kMiB);
}

// The steps of an allocation before it fails, in order: a later step never runs where an earlier one serves.
class OutOfMemoryOrder : public MemorySearch {
 protected:
  const PoolHandle idle_ = Create(Configured("idle"));
  const PoolHandle own_ = Create(Configured("own"));
};

TEST_F(OutOfMemoryOrder, BeginsWithTheThreadsCachesOfThePool) {
  Cache(idle_, 60 * kMiB);
  std::latch cached(1);
  std::latch over(1);
  std::thread holder([&] {
    Free(Allocate(own_, kMiB));
    cached.count_down();
    over.wait();
  });
  cached.wait();
  const uint64_t reserved = Reserved(own_);
  Allocate(own_, kMiB);
  EXPECT_EQ(Reserved(own_), reserved);
  EXPECT_EQ(Reserved(idle_), 60 * kMiB);
  over.count_down();
  holder.join();
}

// cupy/cupy#7678: a small block that lay among large ones stayed in a cache, and kept them apart.
TEST_F(OutOfMemoryOrder, ServesTheLastMegabytesUnderALimit) {
  const PoolHandle pool = CreateWith({.name = "limited", .limit_bytes = 32 * kMiB});
  Free(Allocate(pool, 32 * kMiB));
  Free(Allocate(pool, kMiB));
  for (int time = 0; time < 4; ++time) Allocate(pool, 8 * kMiB);
}

TEST_F(OutOfMemoryOrder, TakesMemoryOfOtherStreamsByAWaitOnTheDevice) {
  const TestStream stream;
  Cache(idle_, 20 * kMiB);
  const CUdeviceptr used = Allocate(own_, 40 * kMiB);
  HeldWork work(driver(), nullptr, used);
  Free(used);
  const uint64_t waits = CallCount("cuStreamWaitEvent");
  Allocate(own_, 40 * kMiB, stream);
  EXPECT_GT(CallCount("cuStreamWaitEvent"), waits);
  EXPECT_EQ(Reserved(idle_), 20 * kMiB);
}

TEST_F(OutOfMemoryOrder, OpensPendingFreesByAWaitOnTheHost) {
  const TestStream stream;
  Cache(idle_, 20 * kMiB);
  ASSERT_TRUE(Get(own_).mode().Reserve(40 * kMiB).ok());
  // Neighbours that different streams used merge once nobody uses them.
  const CUdeviceptr one = Allocate(own_, 20 * kMiB);
  const CUdeviceptr other = Allocate(own_, 20 * kMiB);
  ASSERT_TRUE(runtime().RecordStream(other, stream).ok());
  FreeAll({one, other});
  Allocate(own_, 40 * kMiB);
  EXPECT_EQ(Reserved(own_), 40 * kMiB);
  EXPECT_EQ(Reserved(idle_), 20 * kMiB);
}

TEST_F(OutOfMemoryOrder, ReleasesOwnSegmentsAndThoseOfOtherPools) {
  Cache(idle_, 30 * kMiB);
  Cache(own_, 30 * kMiB);
  Allocate(own_, 60 * kMiB);
  EXPECT_EQ(Reserved(own_), 60 * kMiB);
  EXPECT_EQ(Reserved(idle_), 0u);
}

TEST_F(OutOfMemoryOrder, EndsWithTheError) {
  Allocate(own_, 40 * kMiB);
  ExpectFailure(TryAllocate(own_, 30 * kMiB).status(), StatusCode::kOutOfMemory, "40 MiB");
}

// An allocator beside the pools, which keeps memory of device 0 until somebody asks for it.
class Framework {
 public:
  Framework(MemoryHolders& holders, uint64_t bytes) : bytes_(bytes) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address_, bytes), CUDA_SUCCESS);
    commpool_holder_options options = {sizeof(options), "framework", nullptr, nullptr, this};
    options.cached_bytes = [](int, void* context) { return static_cast<Framework*>(context)->bytes_; };
    options.release = [](int, uint64_t, void* context) {
      auto* const framework = static_cast<Framework*>(context);
      ++framework->times_asked_;
      return framework->GiveBack();
    };
    holders.Add(options);
  }
  ~Framework() { GiveBack(); }
  Framework(const Framework&) = delete;
  Framework& operator=(const Framework&) = delete;

  int times_asked() const { return times_asked_; }

 private:
  uint64_t GiveBack() {
    if (bytes_ == 0) return 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(address_), CUDA_SUCCESS);
    return std::exchange(bytes_, 0);
  }

  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
  int times_asked_ = 0;
};

using HolderSearch = MemorySearch;

TEST_F(HolderSearch, MemoryOfAHolderServesTheRequest) {
  Framework framework(runtime().holders(), 40 * kMiB);
  Allocate(Create(Configured("needy")), 50 * kMiB);
  EXPECT_EQ(framework.times_asked(), 1);
}

TEST_F(HolderSearch, MemoryOfAHolderMakesRoomForAReserve) {
  Framework framework(runtime().holders(), 40 * kMiB);
  ExpectOk(Get(Create(Configured("needy"))).mode().Reserve(50 * kMiB));
}

TEST_F(HolderSearch, AHolderIsLeftAloneWhileThereIsMemory) {
  Framework framework(runtime().holders(), 20 * kMiB);
  Allocate(Create(Configured("content")), 20 * kMiB);
  EXPECT_EQ(framework.times_asked(), 0);
}

TEST_F(HolderSearch, OtherPoolsFreeMemoryComesBeforeAHolders) {
  Framework framework(runtime().holders(), 10 * kMiB);
  const PoolHandle idle = Create(Configured("idle"));
  ASSERT_TRUE(Get(idle).mode().Reserve(40 * kMiB).ok());
  Allocate(Create(Configured("needy")), 50 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
  EXPECT_EQ(framework.times_asked(), 0);
}

TEST_F(HolderSearch, APoolsOwnLimitIsNoReasonToAsk) {
  Framework framework(runtime().holders(), 10 * kMiB);
  EXPECT_EQ(TryAllocate(CreateWith({.name = "limited", .limit_bytes = 4 * kMiB}), 8 * kMiB).status().code(),
            StatusCode::kOutOfMemory);
  EXPECT_EQ(framework.times_asked(), 0);
}

TEST_F(HolderSearch, TheErrorNamesWhoHoldsWhat) {
  commpool_holder_options options = {sizeof(options), "framework", nullptr, nullptr, nullptr};
  options.cached_bytes = [](int device, void*) { return device == 0 ? 7 * kMiB : 0; };
  runtime().holders().Add(options);
  const std::string message = TryAllocate(Create(Configured("needy")), 100 * kMiB).status().message();
  const size_t line = message.find("\n  framework ");
  ASSERT_NE(line, std::string::npos) << message;
  EXPECT_NE(message.find("7 MiB", line), std::string::npos) << message;
}

TEST_F(HolderSearch, AHolderThatGivesNothingIsNotAskedForEver) {
  int times_asked = 0;
  commpool_holder_options options = {sizeof(options), "gives nothing", nullptr, nullptr, &times_asked};
  options.release = [](int, uint64_t bytes, void* context) {
    ++*static_cast<int*>(context);
    return bytes;
  };
  runtime().holders().Add(options);
  const PoolHandle pool = Create(Configured("needy"));
  Allocate(pool, 32 * kMiB);
  EXPECT_EQ(TryAllocate(pool, 40 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_GE(times_asked, 1);
  EXPECT_LE(times_asked, 10);
  EXPECT_EQ(Get(pool).mode().Reserve(40 * kMiB).code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace commpool::internal::testing
