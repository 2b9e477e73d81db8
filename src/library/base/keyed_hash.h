// SipHash-2-4: a hash of short messages that only those who know its key can make. Any thread.
//
// It proves that a peer knows a key without sending the key (Aumasson and Bernstein, 2012).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "commpool/status.h"

namespace commpool::internal {

// The low half first; each half is 8 bytes in little-endian order.
using HashKey = std::array<uint64_t, 2>;

uint64_t KeyedHash(const HashKey& key, const void* data, size_t bytes);

// 128 bits from the system's generator: a key, or a nonce.
Result<HashKey> RandomKey();

}  // namespace commpool::internal
