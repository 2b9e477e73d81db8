// Whether a peer can be let into memory at a placement, and the refusal where it cannot. Any thread.
#ifndef COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
#define COMMPOOL_SRC_BACKING_PEER_ACCESS_H_

#include "commpool/status.h"
#include "src/backing/backing.h"

namespace commpool::internal {

// Device memory needs a way from the peer to its owner; host memory a peer that maps host NUMA memory.
Capability CanReach(const Driver& driver, const Placement& placement, int peer);

// kNotSupported with the capability's reason, after what was refused; OK where it is available.
Status RefuseUnless(const Capability& capability, const std::string& what);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
