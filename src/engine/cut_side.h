// From which end of a free block a request is cut, where blocks of all sizes share one range that cannot grow or move.
//
// A loss's logits come as one block of half the size, then several of the whole, and the half is freed first: a block
// beside one of twice its size leaves a hole that fits nothing of the next step. So a block lies beside its like, and
// away from what is about twice as large or small. Where neither end says so, large blocks come from the upper end,
// small ones and the very largest from the lower: there is room between them. A segment's first block lies at its
// beginning.
//
// Pure: sizes and offsets alone, so that every rank of a symmetric pool answers the same.
#ifndef COMMPOOL_SRC_ENGINE_CUT_SIDE_H_
#define COMMPOOL_SRC_ENGINE_CUT_SIDE_H_

#include <cstdint>

#include "src/engine/block.h"

namespace commpool::internal::engine {

enum class CutSide { kLow, kHigh };

// REQUIRES: nothing rests beside the block, which is free and merged.
CutSide CutSideFor(uint64_t bytes, const Block& free);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_CUT_SIDE_H_
