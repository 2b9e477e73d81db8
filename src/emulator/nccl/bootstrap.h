// How the ranks of a communicator find each other. A root listens at the address in the unique id and introduces them;
// then each pair of ranks opens two connections. Any thread; one object belongs to one thread at a time.
#pragma once

#include <nccl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/socket.h"

namespace commpool::internal::emulated_nccl {

// What each rank tells the others. It is sent as it lies in memory, because all ranks run the same build.
struct PeerInfo {
  uint64_t magic = 0;  // copied from the unique id
  int32_t rank = 0;
  int32_t ranks = 0;
  uint64_t host = 0;  // the same for all ranks of one host (name and boot)
  int32_t process = 0;
  int32_t device = 0;  // the machine's number, because processes may see other devices
  uint64_t bus = 0;    // the device's place on its host's bus
  int32_t version = 0;
  std::array<char, 64> address = {};  // the rank's listener; Join fills it
};

// Owns the connections to every other rank of a communicator. The communicator holds two, which Join has made.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(int ranks) : connections_(static_cast<size_t>(ranks)) {}

  Connection& to(int rank) { return connections_[static_cast<size_t>(rank)]; }
  // Makes every wait on the mesh fail, here and at the peers. Any thread.
  void Shutdown();

 private:
  std::vector<Connection> connections_;
};

struct Membership {
  std::vector<PeerInfo> peers;  // by rank
  Mesh data;                    // for the progress thread
  Mesh control;                 // for collective host calls
};

// Makes a new id. Its root serves in a thread of this process until every rank has joined.
Result<ncclUniqueId> MakeUniqueId();

// Returns the random number of an id, which NCCL's log calls commId; 0 if this library did not make the id.
uint64_t MagicOf(const ncclUniqueId& id);

// Joins as rank `own.rank` of `own.ranks`. An error names the missing ranks, or what the ranks disagree on.
Result<Membership> Join(const ncclUniqueId& id, PeerInfo own, Deadline deadline);

}  // namespace commpool::internal::emulated_nccl
