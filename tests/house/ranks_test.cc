// The mpi_test rule starts the requested number of ranks, and they reach each other.
#include <gtest/gtest.h>
#include <mpi.h>

namespace {

TEST(MpiTest, StartsTwoRanksThatReachEachOther) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int total = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int share = rank + 1;
  MPI_Allreduce(&share, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  EXPECT_EQ(total, 3);
}

}  // namespace
