// A collective orders its contributors' earlier work before its receivers' later work, and nothing else.
#include <latch>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr int kRanks = 2;

// A rank with buffers of its own, and memory of rank 0 that both ranks write.
struct Writer {
  Rank& rank;
  const DeviceMemory& own;
  const DeviceMemory& result;
  CUdeviceptr shared;

  void Write() const {
    EXPECT_EQ(Api().cuMemcpyDtoDAsync(shared, reinterpret_cast<CUdeviceptr>(own.data()), kBytes, rank.stream),
              CUDA_SUCCESS);
  }
  void AllReduce() const { EXPECT_EQ(rank.AllReduce(own.data(), result.data(), kCount, ncclFloat), ncclSuccess); }
  void AllGather() const {
    EXPECT_EQ(Api().ncclAllGather(own.data(), result.data(), kCount / 2, ncclFloat, rank.comm, rank.stream),
              ncclSuccess);
  }
  void Broadcast(int root) const {
    EXPECT_EQ(Api().ncclBroadcast(own.data(), result.data(), kCount, ncclFloat, root, rank.comm, rank.stream),
              ncclSuccess);
  }
};

class CollectiveRaces : public EmulatedNccl {
 protected:
  // Whether a race is reported. The host does not wait before both ranks have submitted everything.
  static bool AnyRace(const std::function<void(const Writer&)>& body) {
    const CurrentDevice current(0);
    const DeviceMemory shared(0, kBytes, MemoryKind::kPlain);
    std::latch submitted(kRanks);
    RunRanks(kRanks, [&](Rank& rank) {
      const DeviceMemory own(rank.rank, kBytes);
      const DeviceMemory result(rank.rank, kBytes);
      body(Writer{rank, own, result, reinterpret_cast<CUdeviceptr>(shared.data())});
      submitted.arrive_and_wait();
      rank.Synchronize();
    });
    return TakeReports().find("race: ") != std::string::npos;
  }
  // Rank 0 writes before the collective, and rank 1 after it.
  static bool AnyRaceAround(const std::function<void(const Writer&)>& collective) {
    return AnyRace([&](const Writer& writer) {
      if (writer.rank.rank == 0) writer.Write();
      collective(writer);
      if (writer.rank.rank == 1) writer.Write();
    });
  }
};

TEST_F(CollectiveRaces, ThereIsOneWithoutACollective) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) { writer.Write(); }));
}

TEST_F(CollectiveRaces, AnAllReduceOrdersWhatIsBeforeItBeforeWhatIsAfterIt) {
  EXPECT_FALSE(AnyRaceAround([](const Writer& writer) { writer.AllReduce(); }));
}

TEST_F(CollectiveRaces, AnAllReduceDoesNotOrderWhatIsBeforeIt) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) {
    writer.Write();
    writer.AllReduce();
  }));
}

TEST_F(CollectiveRaces, AnAllReduceDoesNotOrderWhatIsAfterIt) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) {
    writer.AllReduce();
    writer.Write();
  }));
}

TEST_F(CollectiveRaces, AnAllGatherOrders) {
  EXPECT_FALSE(AnyRaceAround([](const Writer& writer) { writer.AllGather(); }));
}

TEST_F(CollectiveRaces, ABroadcastOrdersTheRootBeforeTheOthers) {
  EXPECT_FALSE(AnyRaceAround([](const Writer& writer) { writer.Broadcast(0); }));
}

TEST_F(CollectiveRaces, ABroadcastDoesNotOrderTheOthersBeforeTheRoot) {
  EXPECT_TRUE(AnyRaceAround([](const Writer& writer) { writer.Broadcast(1); }));
}

// NCCL returns to a rank when that rank is done; another may still write its own result.
TEST_F(CollectiveRaces, ARankThatIsDoneDoesNotKnowThatAnotherHasWrittenItsResult) {
  EXPECT_TRUE(AnyRace([&](const Writer& writer) {
    // Rank 0 receives into the shared memory.
    if (writer.rank.rank == 0) {
      void* const shared = reinterpret_cast<void*>(writer.shared);
      EXPECT_EQ(writer.rank.AllReduce(writer.own.data(), shared, kCount, ncclFloat), ncclSuccess);
    } else {
      writer.AllReduce();
      writer.Write();
    }
  }));
}

}  // namespace
}  // namespace commpool::internal::testing
