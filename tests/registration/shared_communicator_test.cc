// Several pools of a rank in one call: pools with a common communicator take turns, the others do not wait for each
// other.
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "src/library/pool/group_calls.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SharedCommunicator : public SymmetricTest {
 protected:
  using Call = std::function<Status(Pool&, ncclComm_t)>;

  void TearDown() override {
    if (IsSkipped()) return;
    ExpectOk(Run([&](Rank& rank) {
      for (const PoolHandle handle : HandlesOf(rank)) {
        Status status = runtime().pools().Find(handle).value()->Close();
        if (status.ok()) status = runtime().DestroyPool(handle);
        if (!status.ok()) return status;
      }
      return Status();
    }));
    for (std::vector<ncclComm_t>& communicators : more_) group().Destroy(communicators);
    SymmetricTest::TearDown();
  }

  std::vector<PoolHandle>& HandlesOf(const Rank& rank) { return handles_[rank.number]; }
  // A communicator of all ranks, beside the group's own.
  const std::vector<ncclComm_t>& Another() { return more_.emplace_back(group().ConnectFrom(0)); }
  // One more pool on each rank, with that home; without a home a fixed one.
  void CreateOf(const std::vector<ncclComm_t>& homes) {
    for (int number = 0; number <= last(); ++number) HandlesOf(group()[number]);
    ExpectOk(Run([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.home = homes.empty() ? nullptr : homes[static_cast<size_t>(rank.number)];
      const Result<PoolHandle> made = runtime().CreatePool(std::move(configuration));
      if (made.ok()) HandlesOf(rank).push_back(*made);
      return made.status();
    }));
  }
  // One call of each rank for all of its pools. Returns how many threads made it on rank 0.
  size_t ThreadsOf(const Call& call, const std::vector<ncclComm_t>& passed = {}) {
    std::mutex mutex;
    std::map<std::thread::id, int> threads;
    ExpectOk(Run([&](Rank& rank) {
      std::vector<ncclComm_t> each;
      if (!passed.empty()) each.assign(HandlesOf(rank).size(), passed[static_cast<size_t>(rank.number)]);
      return OnEach(
          runtime(), HandlesOf(rank),
          [&](Pool& pool, size_t place) {
            if (rank.number == 0) {
              const std::lock_guard lock(mutex);
              ++threads[std::this_thread::get_id()];
            }
            return call(pool, each.empty() ? nullptr : each[place]);
          },
          each.empty() ? nullptr : each.data());
    }));
    return threads.size();
  }
  static Status Reserve(Pool& pool, ncclComm_t) { return pool.mode().Reserve(4 * kMiB); }
  static Status Abandon(Pool& pool, ncclComm_t) {
    return pool.mode().AbandonCommunicator(pool.mode().AsSymmetric()->home(), CommunicatorLife::kAlive);
  }
  static Status Rehome(Pool& pool, ncclComm_t communicator) { return pool.mode().AsSymmetric()->Rehome(communicator); }
  static Status RegisterWith(Pool& pool, ncclComm_t communicator) { return pool.mode().RegisterWith(communicator); }
  static Status Deregister(Pool& pool, ncclComm_t communicator) { return pool.mode().Deregister(communicator); }

 private:
  std::map<int, std::vector<PoolHandle>> handles_;  // by rank
  std::list<std::vector<ncclComm_t>> more_;
};

TEST_F(SharedCommunicator, IsUsedInTurnByPoolsThatWereRehomedThere) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  CreateOf(Another());
  CreateOf(Another());
  EXPECT_EQ(ThreadsOf(Reserve), 2u) << "of different homes they wait for nobody's turn";
  EXPECT_EQ(ThreadsOf(Abandon), 2u);
  const std::vector<ncclComm_t>& third = Another();
  EXPECT_EQ(ThreadsOf(Rehome, third), 1u);
  EXPECT_EQ(ThreadsOf(Reserve), 1u);
}

TEST_F(SharedCommunicator, IsUsedInTurnByPoolsThatRegisterWithIt) {
  CreateOf(Another());
  CreateOf(Another());
  const std::vector<ncclComm_t>& third = Another();
  EXPECT_EQ(ThreadsOf(RegisterWith, third), 1u);
  EXPECT_EQ(ThreadsOf(Deregister, third), 1u);
}

TEST_F(SharedCommunicator, IsUsedInTurnByFixedPools) {
  CreateOf({});
  CreateOf({});
  EXPECT_EQ(ThreadsOf(Reserve), 1u);
  EXPECT_EQ(ThreadsOf(RegisterWith, Another()), 1u);
  EXPECT_EQ(ThreadsOf([](Pool& pool, ncclComm_t) { return pool.Trim(0).status(); }), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
