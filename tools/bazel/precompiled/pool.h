// What a pool's modes and all above them include, compiled once (../precompiled.bzl): more than half of their
// compilation.
#pragma once

#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/segments/segment_store.h"
