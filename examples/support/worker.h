// Ranks without MPI, whose mpirun ends a job with its first dead rank: a launcher that starts processes and outlives
// them, and a folder, seen by all, in which they find each other whenever they are other ranks than before.
//
// Used by one thread.
#ifndef COMMPOOL_EXAMPLES_SUPPORT_WORKER_H_
#define COMMPOOL_EXAMPLES_SUPPORT_WORKER_H_

#include <nccl.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace examples {

// Where ranks start: on this machine, or on hosts host1, host2 and so on, through an agent such as ssh.
struct Places {
  std::string agent;  // started as AGENT HOST COMMAND; empty: this machine
  int hosts = 1;
  int ranks = 4;

  int HostOf(int rank) const { return rank * hosts / ranks; }
  // The rank's number on its host.
  int DeviceOf(int rank) const;
};

// Starts this program again, as one rank.
pid_t StartRank(const Places& places, int rank, const std::vector<std::string>& arguments);
// What waitpid says once it has ended.
int AwaitRank(pid_t process);

// After a failure: this rank is still there, and waits until all members but one are. The place of the one that is
// missing; -1 where more are after 20 seconds.
int CallTheRoll(const std::string& folder, int epoch, const std::vector<int>& members, int rank);

// The members of a communicator find each other by a file with its unique id, one for each epoch of them. Throws
// after a minute.
ncclComm_t Meet(const std::string& folder, int epoch, const std::vector<int>& members, int rank);

}  // namespace examples

#endif  // COMMPOOL_EXAMPLES_SUPPORT_WORKER_H_
