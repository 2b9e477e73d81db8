// How the header of a collective and the clock of its operation travel. Any thread.
#pragma once

#include "src/emulator/extension.h"
#include "src/emulator/nccl/collective.h"
#include "src/emulator/nccl/exchange.h"

namespace commpool::internal::emulated_nccl {

Message MakeMessage(const CollectiveHeader& header, commpoolEmulatorOperation operation);

CollectiveHeader HeaderOf(const Message& message);

// Adds to `operation` what the sender knew.
void JoinClock(const Message& message, commpoolEmulatorOperation operation);

}  // namespace commpool::internal::emulated_nccl
