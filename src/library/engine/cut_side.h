// Decides from which end of a free block to cut a request, where blocks of all sizes share a range that cannot grow or
// move.
//
// An example: a loss allocates one block of half a size, then several of the full size, and frees the half first. If
// the half lay beside a full one, it leaves a hole that fits nothing of the next step. So a block should lie beside
// blocks of its size, and away from blocks of about twice or half its size. Where the neighbours at both ends do not
// decide, large blocks come from the upper end, small ones and the very largest from the lower end: the room is between
// them. A segment's first block lies at its beginning.
//
// Pure: it uses sizes and offsets alone, so every rank of a symmetric pool decides the same.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_CUT_SIDE_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_CUT_SIDE_H_

#include <cstdint>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

enum class CutSide { kLow, kHigh };

// REQUIRES: nothing rests beside the block, which is free and merged.
CutSide CutSideFor(uint64_t bytes, const Block& free);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_CUT_SIDE_H_
