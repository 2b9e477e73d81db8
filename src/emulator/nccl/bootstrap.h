// How the ranks of a communicator find each other: a root behind the unique id's address introduces them, then each
// pair holds two connections. Any thread; one object belongs to one thread at a time.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_BOOTSTRAP_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_BOOTSTRAP_H_

#include <nccl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/base/socket.h"

namespace commpool::internal::emulated_nccl {

// What each rank tells the others. Sent as it lies in memory: all ranks run the same build.
struct PeerInfo {
  uint64_t magic = 0;  // of the unique id
  int32_t rank = 0;
  int32_t ranks = 0;
  uint64_t host = 0;  // equal on ranks of one host (name and boot)
  int32_t process = 0;
  int32_t device = 0;  // the machine's number: processes may see other devices
  uint64_t bus = 0;    // the device's place on its host's bus
  int32_t version = 0;
  std::array<char, 64> address = {};  // of its listener, filled by Join
};

// Connections to every other rank of a communicator.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(int ranks) : connections_(static_cast<size_t>(ranks)) {}

  Connection& to(int rank) { return connections_[static_cast<size_t>(rank)]; }
  // Makes every wait on it fail, here and at the peers. Any thread.
  void Shutdown();

 private:
  std::vector<Connection> connections_;
};

struct Membership {
  std::vector<PeerInfo> peers;  // by rank
  Mesh data;                    // for the progress thread
  Mesh control;                 // for collective host calls
};

// A new id, whose root serves in a thread of this process until every rank has joined.
Result<ncclUniqueId> MakeUniqueId();

// The random number in an id: what NCCL's log calls commId. 0 for bytes that are no id of this library.
uint64_t MagicOf(const ncclUniqueId& id);

// Joins as `own.rank` of `own.ranks`. An error names the ranks that did not come, or what they disagree on.
Result<Membership> Join(const ncclUniqueId& id, PeerInfo own, Deadline deadline);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_BOOTSTRAP_H_
