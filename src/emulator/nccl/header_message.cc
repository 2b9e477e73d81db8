#include "src/emulator/nccl/header_message.h"

#include <algorithm>
#include <cstring>

#include "src/emulator/nccl/driver.h"

namespace commpool::internal::emulated_nccl {

namespace {

constexpr size_t kMostClockBytes = 64 << 10;

}  // namespace

Message MakeMessage(const CollectiveHeader& header, commpoolEmulatorOperation operation) {
  Message message(sizeof header + kMostClockBytes);
  std::memcpy(message.data(), &header, sizeof header);
  const size_t clock = GetDriver().commpoolEmulatorClock(operation, message.data() + sizeof header, kMostClockBytes);
  message.resize(sizeof header + std::min(clock, kMostClockBytes));
  return message;
}

CollectiveHeader HeaderOf(const Message& message) {
  CollectiveHeader header;
  std::memcpy(&header, message.data(), std::min(message.size(), sizeof header));
  return header;
}

void JoinClock(const Message& message, commpoolEmulatorOperation operation) {
  if (message.size() <= sizeof(CollectiveHeader)) return;
  GetDriver().commpoolEmulatorJoinClock(operation, message.data() + sizeof(CollectiveHeader),
                                        message.size() - sizeof(CollectiveHeader));
}

}  // namespace commpool::internal::emulated_nccl
