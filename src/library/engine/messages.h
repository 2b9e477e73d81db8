// The messages about a wrong address. Pure functions: any thread.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_MESSAGES_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_MESSAGES_H_

#include <string>

#include "commpool/status.h"
#include "src/library/engine/block.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// Such as "0x7f0000000200".
std::string Hexadecimal(Address address);

// kNotFound for an address at which no live block starts. `holder`: the block that holds the address, null outside all
// segments.
Status NoLiveBlock(const std::string& call, Address address, const Block* holder);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_MESSAGES_H_
