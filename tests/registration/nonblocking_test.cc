// Nonblocking communicators (config.blocking = 0): every call that registration makes is polled to its end.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Nonblocking : public SymmetricTest {
 protected:
  // Communicators of all ranks that may still be coming up when they are used.
  std::vector<ncclComm_t> Connect() {
    const NcclLibrary& nccl = driver().nccl;
    ncclUniqueId id;
    EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> communicators(static_cast<size_t>(group().size()));
    ExpectOk(Run([&](Rank& rank) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const ncclResult_t result = nccl.ncclCommInitRankConfig(&communicators[static_cast<size_t>(rank.number)],
                                                              rank.ranks, id, rank.number, &config);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
      return Status();
    }));
    return communicators;
  }
};

TEST_F(Nonblocking, AHomeServesEveryCollectiveCall) {
  std::vector<ncclComm_t> home = Connect();
  ExpectOk(Create([&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.home = home[static_cast<size_t>(rank.number)];
  }));
  ExpectOk(Reserve(2 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Trim(0));
  ExpectOk(Close());
  group().Destroy(home);
}

TEST_F(Nonblocking, AFurtherCommunicatorIsMetRegisteredAndLeft) {
  ExpectOk(Create());
  ExpectOk(Reserve(2 * kMiB));
  std::vector<ncclComm_t> second = Connect();
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).RegisterWith(second[static_cast<size_t>(rank.number)]); }));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Deregister(second[static_cast<size_t>(rank.number)]); }));
  group().Destroy(second);
}

}  // namespace
}  // namespace commpool::internal::testing
