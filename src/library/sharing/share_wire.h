// What the owner of a shared pool and its importers tell each other, and ranks that offer memory. A message is one
// datagram: a header with the version, the kind, the length and the question's number, four numbers, and a text. Pure:
// any thread. Little-endian, as every host with a GPU.
#ifndef COMMPOOL_SRC_LIBRARY_SHARING_SHARE_WIRE_H_
#define COMMPOOL_SRC_LIBRARY_SHARING_SHARE_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "commpool/status.h"

namespace commpool::internal {

// Count it up whenever a message changes. The header stays as it is in every version.
inline constexpr uint16_t kShareVersion = 2;

enum class ShareKind : uint16_t {
  kHello = 1,   // importer: secret, pool; text: its events
  kWelcome,     // owner: text: its events, the pool's title; descriptor: the reading board
  kRefused,     // owner, to any question: code; text: why; to none: the pool ends asleep, or the connection ends
  kAskSegment,  // importer: an address in the owner's process, the segment that it knows there
  kSegment,     // owner: address, bytes, number; descriptor or text: a fabric handle, unless the importer knows it
  kAskBlock,    // importer: the block's number
  kBlock,       // owner: address, bytes, the segment's number, its line on the reading board
  kLetGo,       // importer: the block's number: its work on the block is done
  kSleep,       // owner: the deadline in milliseconds; let all memory go; sleeps are numbered as questions are
  kAsleep,      // importer: code; text: why it could not
  kAwake,       // owner: map the memory again
  kWritesGoOn,  // owner, once: a block that the importer holds may be written; open the events while the owner lives
  kTakeOffer,   // a rank: secret, place of the offer; no hello comes before it
  kOffer,       // the rank that offers: descriptor
  kLast = kOffer,
};

struct ShareMessage {
  ShareKind kind = ShareKind::kHello;
  std::array<uint64_t, 4> numbers = {};
  std::string text = {};
  uint64_t question = 0;  // which one an answer is for
};

inline constexpr size_t kMostShareText = 2048;
inline constexpr size_t kMostShareBytes = 24 + 4 * sizeof(uint64_t) + kMostShareText;

// Cuts the text where it is too long.
std::string EncodeShare(const ShareMessage& message);
// kInvalidArgument for bytes that are no message; kNotSupported for one of another version.
Result<ShareMessage> DecodeShare(std::string_view bytes);

// The refusal of a question that tells a failure, and the failure that it tells.
ShareMessage RefusalOf(const Status& status, uint64_t question = 0);
Status StatusOf(const ShareMessage& refusal);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_SHARING_SHARE_WIRE_H_
