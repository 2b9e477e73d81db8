// Ranks as processes, for tests in which one dies. Fork before this process opens a driver: a driver does not survive a
// fork.
#pragma once

#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "src/library/driver/loader.h"

namespace commpool::internal::testing {

using Pipe = std::array<int, 2>;

// The exit codes of a rank that fails before its test begins.
enum ForkedRankExit { kNoUniqueId = 40, kNoPipe = 41, kNoCommunicator = 42 };

// A communicator of all ranks. Rank 0 sends its id to the others through the pipe.
inline ncclComm_t ConnectForkedRank(const Driver& driver, int rank, int ranks, const Pipe& pipe_of_id) {
  ncclUniqueId id = {};
  if (rank == 0) {
    if (driver.nccl.ncclGetUniqueId(&id) != ncclSuccess) _exit(kNoUniqueId);
    for (int other = 1; other < ranks; ++other) {
      if (write(pipe_of_id[1], &id, sizeof(id)) != sizeof(id)) _exit(kNoPipe);
    }
  } else if (read(pipe_of_id[0], &id, sizeof(id)) != sizeof(id)) {
    _exit(kNoPipe);
  }
  ncclComm_t communicator = nullptr;
  if (driver.nccl.ncclCommInitRank(&communicator, ranks, id, rank) != ncclSuccess) _exit(kNoCommunicator);
  return communicator;
}

// Returns how each rank's process ended, from waitpid. `live(rank, pipe_of_id)` never returns.
template <typename Live>
std::vector<int> RunForkedRanks(int ranks, Live live) {
  Pipe pipe_of_id = {};
  EXPECT_EQ(pipe(pipe_of_id.data()), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) live(rank, std::as_const(pipe_of_id));
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

inline bool EndedWell(int state) { return WIFEXITED(state) && WEXITSTATUS(state) == 0; }

}  // namespace commpool::internal::testing
