#include "src/pool/symmetric/exhaustion.h"

#include "src/base/bytes.h"

namespace commpool::internal {

std::string Describe(const ExhaustedPool& exhaustion) {
  const std::string needed = std::to_string(exhaustion.needed_bytes);
  std::string text = "has no free block of " + FormatBytes(exhaustion.requested_bytes) + ": " +
                     FormatBytes(exhaustion.reserved_bytes) + " are reserved, the largest free block is " +
                     FormatBytes(exhaustion.largest_free_block) + ". On every rank: reserve(" + needed + ")";
  const bool frees_could_do =
      exhaustion.frees == engine::FreeOrder::kDeferred && exhaustion.largest_segment >= exhaustion.needed_bytes;
  if (frees_could_do) text += ", or reclaim() once every rank has freed " + needed + " bytes in one piece";
  return text;
}

}  // namespace commpool::internal
