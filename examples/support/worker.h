// Ranks without MPI, because mpirun ends a job when its first rank dies. A launcher starts processes and outlives them.
// They find each other in a folder that all can read, again whenever the members change.
//
// One thread uses it.
#pragma once

#include <nccl.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace examples {

// Where ranks start: on this machine, or on hosts host1, host2 and so on, through a program such as ssh.
struct Places {
  std::string agent;  // run as AGENT HOST COMMAND; empty: this machine
  int hosts = 1;
  int ranks = 4;

  int HostOf(int rank) const { return rank * hosts / ranks; }
  // The rank's number on its host.
  int DeviceOf(int rank) const;
};

// Starts this program again, as one rank.
pid_t StartRank(const Places& places, int rank, const std::vector<std::string>& arguments);
// The result of waitpid once the process has ended.
int AwaitRank(pid_t process);

// After a failure: reports that this rank is alive, and waits until all members but one have done so. Returns the place
// of the missing member; -1 where several are missing after 20 seconds.
int CallTheRoll(const std::string& folder, int epoch, const std::vector<int>& members, int rank);

// Makes a communicator of these members for an epoch. They find each other by a file with its unique id. Throws after a
// minute.
ncclComm_t Meet(const std::string& folder, int epoch, const std::vector<int>& members, int rank);

}  // namespace examples
