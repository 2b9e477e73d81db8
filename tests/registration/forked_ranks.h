// Ranks as processes, for tests in which one dies. Fork before this process opens a driver: a driver does not survive a
// fork.
#pragma once

#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/library/driver/loader.h"

namespace commpool::internal::testing {

using Pipe = std::array<int, 2>;

// Ends a rank's process, with 0 where its expectations held.
[[noreturn]] inline void EndForkedRank() { _exit(::testing::Test::HasFailure() ? 1 : 0); }

inline void ThrowUnless(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

// A communicator of all ranks. Rank 0 sends its id to the others through the pipe.
inline ncclComm_t ConnectForkedRank(const Driver& driver, int rank, int ranks, const Pipe& pipe_of_id) {
  ncclUniqueId id = {};
  if (rank == 0) ThrowUnless(driver.nccl.ncclGetUniqueId(&id) == ncclSuccess, "there is an id");
  for (int other = 1; other < ranks && rank == 0; ++other) {
    ThrowUnless(write(pipe_of_id[1], &id, sizeof(id)) == sizeof(id), "the id is sent");
  }
  if (rank != 0) ThrowUnless(read(pipe_of_id[0], &id, sizeof(id)) == sizeof(id), "the id is received");
  ncclComm_t communicator = nullptr;
  ThrowUnless(driver.nccl.ncclCommInitRank(&communicator, ranks, id, rank) == ncclSuccess, "the ranks are connected");
  return communicator;
}

// Returns how each rank's process ended, from waitpid. `live(rank, pipe_of_id)` calls EndForkedRank, or throws.
template <typename Live>
std::vector<int> RunForkedRanks(int ranks, Live live) {
  Pipe pipe_of_id = {};
  EXPECT_EQ(pipe(pipe_of_id.data()), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      try {
        live(rank, std::as_const(pipe_of_id));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      EndForkedRank();
    }
    children.push_back(child);
  }
  std::vector<int> states;
  for (const pid_t child : children) {
    int state = -1;
    EXPECT_EQ(waitpid(child, &state, 0), child);
    states.push_back(state);
  }
  for (const int end : pipe_of_id) close(end);
  return states;
}

constexpr int kNobody = -1;

// Expects that every rank ended well, but for one that was killed.
inline void ExpectEnded(const std::vector<int>& states, int killed = kNobody) {
  for (int rank = 0; rank < std::ssize(states); ++rank) {
    const int state = states[static_cast<size_t>(rank)];
    const bool well = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    EXPECT_TRUE(rank == killed ? WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL : well)
        << "rank " << rank << ": " << state;
  }
}

}  // namespace commpool::internal::testing
