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

  void Write(CUdeviceptr target) const {
    EXPECT_EQ(Api().cuMemcpyDtoDAsync(target, reinterpret_cast<CUdeviceptr>(own.data()), kBytes, rank.stream),
              CUDA_SUCCESS);
  }
  void AllReduce() const {
    EXPECT_EQ(Api().ncclAllReduce(own.data(), result.data(), kCount, ncclFloat, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
  }
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
};

TEST_F(CollectiveRaces, ThereIsOneWithoutACollective) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) { writer.Write(writer.shared); }));
}

TEST_F(CollectiveRaces, AnAllReduceOrdersWhatIsBeforeItBeforeWhatIsAfterIt) {
  EXPECT_FALSE(AnyRace([](const Writer& writer) {
    if (writer.rank.rank == 0) writer.Write(writer.shared);
    writer.AllReduce();
    if (writer.rank.rank == 1) writer.Write(writer.shared);
  }));
}

TEST_F(CollectiveRaces, AnAllReduceDoesNotOrderWhatIsBeforeIt) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) {
    writer.Write(writer.shared);
    writer.AllReduce();
  }));
}

TEST_F(CollectiveRaces, AnAllReduceDoesNotOrderWhatIsAfterIt) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) {
    writer.AllReduce();
    writer.Write(writer.shared);
  }));
}

TEST_F(CollectiveRaces, AnAllGatherOrders) {
  EXPECT_FALSE(AnyRace([](const Writer& writer) {
    if (writer.rank.rank == 0) writer.Write(writer.shared);
    writer.AllGather();
    if (writer.rank.rank == 1) writer.Write(writer.shared);
  }));
}

TEST_F(CollectiveRaces, ABroadcastOrdersTheRootBeforeTheOthers) {
  EXPECT_FALSE(AnyRace([](const Writer& writer) {
    if (writer.rank.rank == 0) writer.Write(writer.shared);
    writer.Broadcast(0);
    if (writer.rank.rank == 1) writer.Write(writer.shared);
  }));
}

TEST_F(CollectiveRaces, ABroadcastDoesNotOrderTheOthersBeforeTheRoot) {
  EXPECT_TRUE(AnyRace([](const Writer& writer) {
    if (writer.rank.rank == 0) writer.Write(writer.shared);
    writer.Broadcast(1);
    if (writer.rank.rank == 1) writer.Write(writer.shared);
  }));
}

// NCCL returns to a rank when that rank is done; another may still write its own result.
TEST_F(CollectiveRaces, ARankThatIsDoneDoesNotKnowThatAnotherHasWrittenItsResult) {
  EXPECT_TRUE(AnyRace([&](const Writer& writer) {
    // Rank 0 receives into the shared memory.
    if (writer.rank.rank == 0) {
      EXPECT_EQ(Api().ncclAllReduce(writer.own.data(), reinterpret_cast<void*>(writer.shared), kCount, ncclFloat,
                                    ncclSum, writer.rank.comm, writer.rank.stream),
                ncclSuccess);
    } else {
      writer.AllReduce();
      writer.Write(writer.shared);
    }
  }));
}

}  // namespace
}  // namespace commpool::internal::testing
