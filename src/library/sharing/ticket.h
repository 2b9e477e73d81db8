// Ticket: the text by which another process imports a pool, or a block of it. Pure: any thread.
//
//   commpool-ticket-1,CHECKSUM,SECRET,PROCESS,POOL,DEVICE,BLOCK,ADDRESS,BYTES,SOCKET
//
// Numbers are hexadecimal. The checksum finds a text that was cut or mistyped. Who knows the secret may import, so a
// forged ticket is refused by the owner and not by the parser. Python takes DEVICE from its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/library/base/keyed_hash.h"

namespace commpool::internal {

inline constexpr size_t kMostTicketBytes = 511;  // COMMPOOL_TICKET_BYTES without the zero

// With zeros in front, up to so many digits.
std::string Hexadecimal(uint64_t number, int digits = 1);

struct Ticket {
  HashKey secret = {};      // of the pool
  uint64_t process = 0;     // the owner's number, for messages alone: another container may have another list of them
  uint64_t pool = 0;        // its handle there
  std::string device = {};  // the PCI address of the pool's device; processes number devices as they like
  uint64_t block = 0;       // a number that the owner never gives again; 0 for the ticket of a pool
  uint64_t address = 0;     // of the block, in the owner's process
  uint64_t bytes = 0;       // of the block
  std::string socket = {};  // where the owner listens

  std::string Text() const;
  // kInvalidArgument for what is no ticket, or was cut or changed; kNotSupported for a version that is newer.
  static Result<Ticket> Parse(std::string_view text);
};

}  // namespace commpool::internal
