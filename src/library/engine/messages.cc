#include "src/library/engine/messages.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "src/library/engine/heap_segment.h"

namespace commpool::internal::engine {

std::string Hexadecimal(Address address) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

Status NoLiveBlock(const std::string& call, Address address, const Block* holder) {
  std::string why = "not from this pool, or freed already and its segment given back to the system";
  if (holder != nullptr) {
    const std::string place = std::to_string(holder->bytes) + " bytes at " + Hexadecimal(AddressOf(*holder));
    if (holder->state == BlockState::kLive) {
      why = "the address lies inside a live block of " + place + "; pass the address that allocate returned";
    } else if (holder->state == BlockState::kFree) {
      why = "it lies in a free block of " + place + ": freed already, or never allocated";
    } else if (IsHole(*holder)) {
      why = "the pool has no memory there: never allocated, or moved since";
    } else {
      why = "freed already (a block of " + place + " that is not free memory yet)";
    }
  }
  return Status(StatusCode::kNotFound, call + ": no live block at " + Hexadecimal(address) + ": " + why);
}

}  // namespace commpool::internal::engine
