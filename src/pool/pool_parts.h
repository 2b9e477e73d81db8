// What every pool is made of, whatever its mode. Each part can be read, and tested, alone.
#ifndef COMMPOOL_SRC_POOL_POOL_PARTS_H_
#define COMMPOOL_SRC_POOL_POOL_PARTS_H_

#include <memory>
#include <utility>

#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/kept_blocks.h"
#include "src/pool/captures/graph_captures.h"
#include "src/pool/pool_basis.h"
#include "src/pool/pool_group.h"
#include "src/pool/pool_life.h"
#include "src/pool/pool_statistics.h"
#include "src/pool/segments/segment_pins.h"
#include "src/pool/segments/segment_store.h"
#include "src/registration/registration_set.h"

namespace commpool::internal {

struct PoolParts {
  PoolParts(PoolBasis pool_basis, RegistrationKind kind, std::unique_ptr<engine::Engine> engine,
            std::unique_ptr<Backing> backing, std::shared_ptr<MemoryAccount> account)
      : basis(std::move(pool_basis)),
        registrations(basis.driver, kind, basis.deadline_ms(), basis.runtime.windows),
        captures(basis.driver),
        pins(registrations, captures),
        blocks(basis, std::move(engine)),
        segments(basis, blocks, std::move(backing), std::move(account)) {}

  // kFailedPrecondition where it sleeps.
  Status CheckAwake() const { return life.asleep() ? CheckOpen() : Status(); }
  // OK where the pool serves and its device works.
  Status CheckOpen() const {
    Status open = life.CheckOpen();
    if (!open.ok()) return Status(open.code(), basis.title + " " + open.message());
    return basis.device->health().first_error();
  }

  PoolBasis basis;
  PoolLife life;
  PoolEvents events;
  RegistrationSet registrations;  // of segments with communicators
  GraphCaptures captures;         // that the pool was told of
  SegmentPins pins;               // why a segment may not be unmapped
  BlockStore blocks;              // serves and takes back
  SegmentStore segments;          // makes, accounts, grants and gives back
  KeptBlocks kept;                // of a pool that sleeps: under the growth lock

  // The pools of one home that the same thread made with it; null where it made this one alone. Joined once.
  std::shared_ptr<const PoolGroup> group;

  // One collective or registering call at a time.
  Mutex collective{LockRank::kCollective};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_PARTS_H_
