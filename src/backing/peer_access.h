// Whether a peer can be let into memory at a placement, and the refusal where it cannot. Any thread.
#ifndef COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
#define COMMPOOL_SRC_BACKING_PEER_ACCESS_H_

#include "commpool/status.h"
#include "src/backing/backing.h"

namespace commpool::internal {

// Device memory needs a way from the peer to its owner; host memory a peer that maps host NUMA memory.
Capability CanReach(const Driver& driver, const Placement& placement, int peer);

// OK where the capability is there; else kNotSupported: "`what`: reason".
Status RefuseUnless(const Capability& capability, const std::string& what);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
