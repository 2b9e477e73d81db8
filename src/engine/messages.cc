#include "src/engine/messages.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "src/engine/heap_segment.h"

namespace commpool::internal::engine {

std::string Hexadecimal(Address address) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

Status NoLiveBlock(const std::string& call, Address address, const Block* holder) {
  const std::string prefix = call + ": no live block at " + Hexadecimal(address) + ": ";
  if (holder == nullptr) {
    return Status(StatusCode::kNotFound,
                  prefix + "not from this pool, or freed already and its segment given back to the system");
  }
  const std::string place = std::to_string(holder->bytes) + " bytes at " + Hexadecimal(AddressOf(*holder));
  switch (holder->state) {
    case BlockState::kLive:
      return Status(StatusCode::kNotFound, prefix + "the address lies inside a live block of " + place +
                                               "; pass the address that allocate returned");
    case BlockState::kFree:
    case BlockState::kResting:
      return Status(StatusCode::kNotFound,
                    prefix + "it lies in a free block of " + place + ": freed already, or never allocated");
    case BlockState::kUnmapped:
    case BlockState::kArriving:
      return Status(StatusCode::kNotFound, prefix + "the pool has no memory there: never allocated, or moved since");
    case BlockState::kAwaitingFences:
    case BlockState::kDeferred:
    case BlockState::kLeaving:
      break;
  }
  return Status(StatusCode::kNotFound, prefix + "freed already (a block of " + place + " that is not free memory yet)");
}

Status ZeroBytes() {
  return Status(StatusCode::kInvalidArgument, "allocate: 0 bytes asked for; a block has at least 1 byte");
}

Status TooManyBytes(uint64_t bytes, uint64_t unit) {
  return Status(StatusCode::kInvalidArgument, "allocate: " + std::to_string(bytes) +
                                                  " bytes rounded up to a multiple of " + std::to_string(unit) +
                                                  " exceed 64 bits: probably a negative or uninitialised size");
}

}  // namespace commpool::internal::engine
