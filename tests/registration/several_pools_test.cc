// Several symmetric pools of each rank in one call: they need as many rounds as one pool, and the call succeeds for all
// or none.
#include <atomic>
#include <barrier>
#include <cstring>
#include <map>

#include "src/library/pool/group_calls.h"
#include "tests/pool/held_work.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {
namespace {

// An all-gather between threads of one process that counts its calls.
class Gathering {
 public:
  explicit Gathering(int ranks) : barrier_(ranks), sent_(static_cast<size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) contexts_.push_back({this, static_cast<size_t>(rank)});
  }

  static int Gather(const void* sent, void* received, size_t bytes, void* context) {
    auto& [gathering, rank, calls] = *static_cast<Context*>(context);
    ++calls;
    gathering->sent_[rank] = sent;
    gathering->barrier_.arrive_and_wait();
    for (size_t other = 0; other < gathering->sent_.size(); ++other) {
      std::memcpy(static_cast<char*>(received) + other * bytes, gathering->sent_[other], bytes);
    }
    gathering->barrier_.arrive_and_wait();
    return 0;
  }
  void* ContextOf(int rank) { return &contexts_[static_cast<size_t>(rank)]; }
  int CallsOf(int rank) const { return contexts_[static_cast<size_t>(rank)].calls; }

 private:
  struct Context {
    Gathering* gathering;
    size_t rank;
    int calls = 0;
  };
  std::barrier<> barrier_;
  std::vector<const void*> sent_;
  std::vector<Context> contexts_;
};

using Names = std::vector<std::string>;

class SeveralPools : public SymmetricTest {
 protected:
  void TearDown() override {
    if (IsSkipped()) return;
    ForEach([&](Rank& rank) {
      for (const auto& [name, handle] : HandlesOf(rank)) {
        CheckInvariants(Named(rank, name));
        ExpectOk({Named(rank, name).Close(), runtime().DestroyPool(handle)});
      }
    });
    SymmetricTest::TearDown();
  }

  void CreatePools(const Names& names, const Adjust& adjust = nullptr) {
    handles_.resize(static_cast<size_t>(group().size()));
    ForEach([&](Rank& rank) {
      for (const std::string& name : names) {
        PoolConfiguration configuration = Configured(rank);
        configuration.name = name;
        if (adjust) adjust(rank, configuration);
        HandlesOf(rank)[name] = runtime().CreatePool(std::move(configuration)).value();
      }
    });
  }
  void CreateAndReserveTogether(const Names& names) {
    CreatePools(names);
    ExpectOk(ReserveTogether(names));
  }
  std::map<std::string, PoolHandle>& HandlesOf(const Rank& rank) { return handles_[rank.index()]; }
  Pool& Named(const Rank& rank, const std::string& name) {
    return *runtime().pools().Find(HandlesOf(rank).at(name)).value();
  }

  // A pool of this rank alone, which knows the ranks' communicator too.
  PoolHandle CreateFixed(const Rank& rank) {
    const std::shared_ptr<Pool> fixed = MakeFixed("fixed", rank.number);
    ExpectOk({fixed->mode().RegisterWith(rank.communicator)});
    return fixed->handle();
  }

  // One call of each rank for these pools.
  std::vector<PoolHandle> HandlesOf(const Rank& rank, const Names& names) {
    std::vector<PoolHandle> handles;
    for (const std::string& name : names) handles.push_back(HandlesOf(rank).at(name));
    return handles;
  }
  Statuses ReserveTogether(const Names& names, uint64_t bytes = 4 * kMiB) {
    return Run([&](Rank& rank) { return ReservePools(runtime(), HandlesOf(rank, names), bytes); });
  }
  Statuses ReclaimTogether(const Names& names) {
    return Run([&](Rank& rank) {
      std::vector<uint64_t> reclaimed(names.size());
      return ReclaimPools(runtime(), HandlesOf(rank, names), reclaimed.data());
    });
  }
  // A call of sleep or wake.
  template <typename Part>
  Status CallAllOrNone(const std::vector<PoolHandle>& pools, Part part, Oldest oldest = Oldest::kFirst) {
    return AllOrNone(
        runtime(), pools,
        [&](Pool& pool, OtherPoolsOfCall others) {
          return (pool.*part)({.keep = Keep::kHost, .graphs = LiveGraphs::kDiscarded}, others);
        },
        oldest);
  }
  Statuses SleepTogether(const Names& names) {
    return Run([&](Rank& rank) { return CallAllOrNone(HandlesOf(rank, names), &Pool::Sleep, Oldest::kLast); });
  }
  Statuses WakeTogether(const Names& names) {
    return Run([&](Rank& rank) { return CallAllOrNone(HandlesOf(rank, names), &Pool::Wake); });
  }
  Statuses VerifyTogether(const Names& names) {
    return Run([&](Rank& rank) { return VerifyPools(runtime(), HandlesOf(rank, names)); });
  }

  // The state of each pool on each rank; all must be equal.
  void ExpectAll(const Names& names, uint64_t reserved, uint64_t windows) {
    for (int number = 0; number <= last(); ++number) {
      for (const std::string& name : names) {
        const commpool_statistics statistics = Named(group()[number], name).Statistics();
        EXPECT_EQ(statistics.reserved_bytes.current, reserved) << name << " on rank " << number;
        EXPECT_EQ(statistics.registered_segments, windows) << name << " on rank " << number;
      }
    }
  }
  static void ExpectFailureOf(const std::string& pool, const Statuses& statuses, StatusCode code,
                              const std::string& fragment) {
    ExpectFailure(statuses, code, fragment);
    for (const Status& status : statuses) EXPECT_EQ(status.message().find("pool " + pool), 0u) << status.message();
  }

  std::optional<Gathering> gathering_;  // the pools need it until they are closed

 private:
  std::vector<std::map<std::string, PoolHandle>> handles_;
};

const Names kThree = {"gradients", "weights", "moments"};

TEST_F(SeveralPools, AgreeInTheRoundsOfOne) {
  Gathering& gathering = gathering_.emplace(group().size());
  CreatePools(kThree, [&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.all_gather = Gathering::Gather;
    configuration.all_gather_context = gathering.ContextOf(rank.number);
  });
  const auto rounds_of = [&](const std::function<void()>& call) {
    const int before = gathering.CallsOf(last());
    call();
    return (gathering.CallsOf(last()) - before) / 2;  // two calls a round: lengths, then contents
  };
  EXPECT_EQ(rounds_of([&] { ExpectOk(ReserveTogether({"weights"})); }), 3);
  EXPECT_EQ(rounds_of([&] { ExpectOk(ReserveTogether(kThree)); }), 3) << "one of them has free memory already";
  EXPECT_EQ(rounds_of([&] { ExpectOk(ReserveTogether(kThree)); }), 1) << "all have";
  EXPECT_EQ(rounds_of([&] { ExpectOk(ReclaimTogether(kThree)); }), 1);
  EXPECT_EQ(rounds_of([&] { ExpectOk(VerifyTogether(kThree)); }), 1);
  ExpectAll(kThree, 4 * kMiB, 1);
  EXPECT_EQ(rounds_of([&] {
              ForEach([&](Rank& rank) {
                for (const std::string& name : kThree) ExpectOk({Named(rank, name).mode().Reserve(8 * kMiB)});
              });
            }),
            9)
      << "one after the other";
}

TEST_F(SeveralPools, HaveEqualOffsetsAndTheirOwnFrees) {
  CreateAndReserveTogether(kThree);
  std::vector<std::vector<uint64_t>> offsets(static_cast<size_t>(group().size()));
  std::vector<std::vector<uint64_t>> reclaimed(offsets.size(), std::vector<uint64_t>(kThree.size()));
  ForEach([&](Rank& rank) {
    for (size_t place = 0; place < kThree.size(); ++place) {
      Pool& pool = Named(rank, kThree[place]);
      const CUdeviceptr block = AllocateFrom(pool, rank, (place + 1) * kMiB).value();
      offsets[rank.index()].push_back(WindowOf(rank, block).value().offset);
      ExpectOk({pool.Free(block)});
    }
    ExpectOk({ReclaimPools(runtime(), HandlesOf(rank, kThree), reclaimed[rank.index()].data())});
  });
  for (size_t rank = 0; rank < offsets.size(); ++rank) {
    EXPECT_EQ(offsets[rank], offsets[0]) << "rank " << rank;
    EXPECT_EQ(reclaimed[rank], (std::vector<uint64_t>{kMiB, 2 * kMiB, 3 * kMiB})) << "rank " << rank;
  }
}

TEST_F(SeveralPools, GetNoMemoryWhereOneOfThemFindsNoneOnOneRank) {
  CreateAndReserveTogether(kThree);
  Account(last()).SetLimit(Account(last()).taken() + 6 * kMiB);  // room for the first pool's segment
  ExpectFailureOf("weights", ReserveTogether(kThree, 6 * kMiB), StatusCode::kOutOfMemory,
                  "making a segment of 6 MiB failed on " + LastRank());
  ExpectAll(kThree, 4 * kMiB, 1);
  Account(last()).SetLimit(UINT64_MAX);
  ExpectOk(VerifyTogether(kThree));
  ExpectOk(ReserveTogether(kThree, 6 * kMiB));
  ExpectAll(kThree, 10 * kMiB, 2);
}

TEST_F(SeveralPools, AreAsBeforeWhereOneOfThemCannotBeRegistered) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserveTogether(kThree);
  {
    // Every rank's call for the second pool. Those for the first are over then, and none follows for the third.
    const uint64_t calls = CallCount("ncclCommWindowRegister");
    const InjectedFault second(
        {.call = "ncclCommWindowRegister", .result = ncclSystemError, .skip = group().size(), .count = group().size()});
    ExpectFailureOf("weights", ReserveTogether(kThree, 6 * kMiB), StatusCode::kCommunicatorError,
                    "registering a segment of 6 MiB failed on rank 0");
    EXPECT_EQ(CallCount("ncclCommWindowRegister") - calls, 2 * static_cast<uint64_t>(group().size()));
  }
  ExpectAll(kThree, 4 * kMiB, 1);
  ExpectOk(ReserveTogether(kThree, 6 * kMiB));
  ExpectAll(kThree, 10 * kMiB, 2);
}

TEST_F(SeveralPools, StopWhereOneOfThemMayNotGrow) {
  CreatePools(kThree, [](const Rank&, PoolConfiguration& configuration) {
    if (configuration.name == "moments") configuration.limit_bytes = 4 * kMiB;
  });
  ExpectFailureOf("moments", ReserveTogether(kThree, 6 * kMiB), StatusCode::kOutOfMemory,
                  "reserve of 6 MiB would exceed its limit");
  ExpectAll(kThree, 0, 0);
  ExpectFailure(ReserveTogether(kThree, 0), StatusCode::kInvalidArgument, "reserve of 0 bytes");
  ExpectOk(Run([&](Rank& rank) { return Named(rank, "weights").Close(); }));
  ExpectFailureOf("weights", ReserveTogether(kThree), StatusCode::kFailedPrecondition, "is closed");
  ExpectAll(kThree, 0, 0);
  ExpectOk(ReserveTogether({"gradients", "moments"}));
}

// What the others would not wait for, one pool after the other.
TEST_F(SeveralPools, WaitForABusyDeviceOnce) {
  const Names names = {"first", "second"};
  CreatePools(names, [&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.streams = Streams::kMayDie;
    configuration.deadline_ms = rank.number == last() ? 5000 : 4000;
  });
  ExpectOk(ReserveTogether(names));
  HeldStream held(driver().cuda, group()[last()].stream);
  for (const std::string& name : names) {
    ExpectOk(Run([&](Rank& rank) {
      return runtime().Free(runtime().AllocateFrom(HandlesOf(rank).at(name), kMiB, rank.stream).value());
    }));
  }
  ExpectOk(VerifyTogether(names));
  held.End();
}

// NCCL lets one thread at a time use a communicator, and registrations end and come back with it.
TEST_F(SeveralPools, ThatOneCommunicatorKnowsSleepOneAfterTheOther) {
  CreatePools({"symmetric"});
  ExpectOk(Run([&](Rank& rank) {
    const PoolHandle fixed = CreateFixed(rank);
    std::atomic<int> at_once = 0;
    const std::vector<PoolHandle> both = {HandlesOf(rank).at("symmetric"), fixed};
    const Status asked = AllOrNone(
        runtime(), both,
        [&](Pool&, OtherPoolsOfCall others) {
          EXPECT_EQ(++at_once, 1);
          const Status status = others();
          --at_once;
          return status;
        },
        Oldest::kFirst);
    return asked.ok() ? runtime().DestroyPool(fixed) : asked;
  }));
}

// A fixed pool's part ends on its rank alone, so it cannot decide for the ranks.
TEST_F(SeveralPools, SleepAndWakeOnAllRanksWhateverAFixedPoolBesideThemDoes) {
  CreateAndReserveTogether({"symmetric"});
  ExpectOk(Run([&](Rank& rank) {
    const PoolHandle fixed = CreateFixed(rank);
    const Pool& symmetric = Named(rank, "symmetric");
    for (const std::vector<PoolHandle>& both : {std::vector<PoolHandle>{HandlesOf(rank).at("symmetric"), fixed},
                                                std::vector<PoolHandle>{fixed, HandlesOf(rank).at("symmetric")}}) {
      const StatusCode expected = rank.number == 0 ? StatusCode::kFailedPrecondition : StatusCode::kOk;
      EXPECT_TRUE(rank.number != 0 || CallAllOrNone({fixed}, &Pool::Sleep).ok());
      EXPECT_EQ(CallAllOrNone(both, &Pool::Sleep).code(), expected) << "it sleeps already";
      EXPECT_TRUE(symmetric.basis().life.asleep());
      EXPECT_TRUE(rank.number != 0 || CallAllOrNone({fixed}, &Pool::Wake).ok());
      EXPECT_EQ(CallAllOrNone(both, &Pool::Wake).code(), expected) << "it is awake already";
      EXPECT_FALSE(symmetric.basis().life.asleep());
      const std::string first = runtime().pools().Find(both.front()).value()->name();
      EXPECT_EQ(CallAllOrNone(both, &Pool::Wake).message().find("pool " + first), 0u)
          << "of both that fail the first is told";
    }
    return runtime().DestroyPool(fixed);
  }));
}

// What fails is the last pool's copy, and its memory, once the others have nothing left that can fail.
TEST_F(SeveralPools, SleepAndWakeAllOrNoneOnEveryRank) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  CreateAndReserveTogether(kThree);
  std::vector<CUdeviceptr> blocks(static_cast<size_t>(group().size()));
  ForEach([&](Rank& rank) { blocks[rank.index()] = AllocateFrom(Named(rank, "moments"), rank, kMiB).value(); });
  const auto expect_asleep = [&](bool asleep) {
    ExpectAll(kThree, 4 * kMiB, asleep ? 0 : 1);
    for (Rank& rank : group()) {
      for (const std::string& name : kThree) EXPECT_EQ(Named(rank, name).basis().life.asleep(), asleep) << name;
    }
  };
  ExpectFailureOf("moments", With({"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE}, [&] { return SleepTogether(kThree); }),
                  StatusCode::kDriverError, "cuMemcpyAsync");
  expect_asleep(false);
  ExpectOk(SleepTogether(kThree));
  expect_asleep(true);
  ExpectFailureOf(
      "moments", With({"cuMemMap", CUDA_ERROR_INVALID_VALUE, 2 * group().size()}, [&] { return WakeTogether(kThree); }),
      StatusCode::kDriverError, "cuMemMap");
  expect_asleep(true);
  ExpectOk(WakeTogether(kThree));
  expect_asleep(false);
  ExpectOk(Run([&](Rank& rank) { return Named(rank, "moments").Free(blocks[rank.index()]); }));
}

TEST_F(SeveralPools, AreTheSameOnEveryRank) {
  CreatePools(kThree);
  const auto call = [&](const Names& first, const Names& others) {
    return Run([&](Rank& rank) {
      return ReservePools(runtime(), HandlesOf(rank, rank.number == 0 ? first : others), 4 * kMiB);
    });
  };
  const std::string what = "ranks disagree on the pools of one call: rank 0: ";
  const std::string two = what + "gradients (pool 1 of home), weights (pool 2 of home); rank 1: ";
  ExpectFailure(call({"gradients", "weights"}, {"weights", "gradients"}), StatusCode::kDisagreement,
                two + "weights (pool 2 of home), gradients (pool 1 of home)");
  ExpectFailure(call({"gradients", "weights"}, {"gradients", "moments"}), StatusCode::kDisagreement,
                two + "gradients (pool 1 of home), moments (pool 3 of home)");
  ExpectFailure(call({"gradients"}, {"gradients", "moments"}), StatusCode::kDisagreement,
                what + "one pool alone; rank 1: gradients (pool 1 of home), moments (pool 3 of home)");
  ExpectAll(kThree, 0, 0);
  ExpectOk(call(kThree, kThree));
  ExpectAll(kThree, 4 * kMiB, 1);
}

TEST_F(SeveralPools, DivergeAlone) {
  CreateAndReserveTogether(kThree);
  const auto allocate = [&](const Rank& rank, const std::string& name) {
    Pool& pool = Named(rank, name);
    const Result<CUdeviceptr> block = AllocateFrom(pool, rank, kMiB);
    return block.ok() ? pool.Free(*block) : block.status();
  };
  ExpectOk({allocate(group()[0], "weights")});
  ExpectFailureOf("weights", VerifyTogether(kThree), StatusCode::kDisagreement, "rank 0 also made allocate");
  ExpectFailure(Run([&](Rank& rank) { return allocate(rank, "weights"); }), StatusCode::kDisagreement, "weights");
  for (const std::string name : {"gradients", "moments"}) {
    ExpectOk(Run([&](Rank& rank) { return allocate(rank, name); }));
  }
  ExpectFailureOf("weights", ReserveTogether(kThree, 8 * kMiB), StatusCode::kDisagreement, "rank 0 also made");
  ExpectOk(ReserveTogether({"gradients", "moments"}, 8 * kMiB));
}

// A rank's other calls are not combined: one pool after the other, and other homes apart.
TEST_F(SeveralPools, OfAnotherHomeAgreeByThemselves) {
  std::vector<ncclComm_t> other = group().ConnectFrom(0);
  CreatePools(kThree, [&](const Rank& rank, PoolConfiguration& configuration) {
    if (configuration.name != "moments") return;
    configuration.home = other[rank.index()];
    configuration.limit_bytes = 2 * kMiB;
  });
  ExpectFailureOf("moments", ReserveTogether(kThree), StatusCode::kOutOfMemory,
                  "reserve of 4 MiB would exceed its limit");
  ExpectAll({"gradients", "weights"}, 4 * kMiB, 1);
  ExpectAll({"moments"}, 0, 0);
  ExpectOk(Run([&](Rank& rank) { return Named(rank, "moments").Close(); }));
  group().Destroy(other);
}

}  // namespace
}  // namespace commpool::internal::testing
