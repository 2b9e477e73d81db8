// The agreement over MPI between processes, without a pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "commpool/mpi.h"

namespace commpool {
namespace {

constexpr std::chrono::milliseconds kShort{300};

int RankHere() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int RanksHere() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

int GatherNumbers(const Agreement& agreement, int mine, std::vector<int>& all) {
  all.assign(static_cast<std::size_t>(RanksHere()), -1);
  return agreement.all_gather(&mine, all.data(), sizeof(mine), agreement.context);
}

TEST(MpiAgreement, GivesEveryRankEverybodysBytesInOrder) {
  MpiAgreement mpi(MPI_COMM_WORLD);
  const Agreement agreement = mpi;
  const auto ranks = static_cast<std::size_t>(RanksHere());
  for (const std::size_t bytes : {1U, 8U, 1U << 22, 0U}) {
    const std::vector<char> sent(bytes, static_cast<char>('a' + RankHere()));
    std::vector<char> received(ranks * bytes);
    ASSERT_EQ(agreement.all_gather(sent.data(), received.data(), bytes, agreement.context), 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<char> expected(bytes, static_cast<char>('a' + rank));
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), received.data() + rank * bytes)) << bytes;
    }
  }
}

TEST(MpiAgreement, KeepsRoundsApartThoughRanksAreAtDifferentOnes) {
  MpiAgreement mpi(MPI_COMM_WORLD);
  std::vector<int> all, expected;
  for (int round = 0; round < 100; ++round) {
    expected.clear();
    for (int rank = 0; rank < RanksHere(); ++rank) expected.push_back(1000 * round + rank);
    ASSERT_EQ(GatherNumbers(mpi, 1000 * round + RankHere(), all), 0);
    ASSERT_EQ(all, expected);
  }
}

TEST(MpiAgreement, IsApartFromTheProgramsOwnMessages) {
  const int next = (RankHere() + 1) % RanksHere();
  const int previous = (RankHere() + RanksHere() - 1) % RanksHere();
  const int own = 42;
  int from_previous = 0;
  MPI_Request sending = MPI_REQUEST_NULL;
  MPI_Isend(&own, 1, MPI_INT, next, 0, MPI_COMM_WORLD, &sending);
  MpiAgreement mpi(MPI_COMM_WORLD);
  std::vector<int> all;
  EXPECT_EQ(GatherNumbers(mpi, RankHere(), all), 0);
  EXPECT_EQ(all.back(), RanksHere() - 1);
  MPI_Recv(&from_previous, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
  EXPECT_EQ(from_previous, 42);
}

TEST(MpiAgreement, NamesTheRankThatDoesNotComeAndStaysBroken) {
  const int absent = RanksHere() - 1;
  MpiAgreement mpi(MPI_COMM_WORLD, kShort);
  if (RankHere() != absent) {
    std::vector<int> all;
    EXPECT_EQ(GatherNumbers(mpi, RankHere(), all), -2 - absent);
    const std::string missing = "missing after 300 ms: rank " + std::to_string(absent);
    EXPECT_NE(mpi.status().message().find(missing), std::string::npos) << mpi.status().message();
    EXPECT_NE(GatherNumbers(mpi, RankHere(), all), 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // A rank that comes too late hears of it too. Nobody waits at the end, because a broken agreement is not freed
  // together.
  if (RankHere() == absent) {
    std::vector<int> all;
    EXPECT_EQ(GatherNumbers(mpi, RankHere(), all), 0);
    EXPECT_NE(GatherNumbers(mpi, RankHere(), all), 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiAgreement, RefusesAThreadThatMpiWasNotInitialisedFor) {
  MpiAgreement mpi(MPI_COMM_WORLD);
  std::vector<int> all;
  ASSERT_EQ(GatherNumbers(mpi, RankHere(), all), 0);
  int result = 0;
  std::thread([&] { result = GatherNumbers(mpi, RankHere(), all); }).join();
  EXPECT_EQ(result, -1);
  EXPECT_NE(mpi.status().message().find("MPI_THREAD_SERIALIZED"), std::string::npos) << mpi.status().message();
}

class Mpi : public ::testing::Environment {
 public:
  void SetUp() override {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  }
  void TearDown() override { MPI_Finalize(); }
};
[[maybe_unused]] ::testing::Environment* const kMpi = ::testing::AddGlobalTestEnvironment(new Mpi);

}  // namespace
}  // namespace commpool
