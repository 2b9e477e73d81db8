// Which kernel, protocol and number of channels NCCL would choose. Pure functions: any thread.
#pragma once

#include <nccl.h>

#include <cstddef>

#include "src/emulator/nccl/collective_kind.h"

namespace commpool::internal::emulated_nccl {

enum class Protocol { kLowLatency, kLowLatency128, kSimple };

// Returns "LL", "LL128" or "SIMPLE", as in NCCL's log.
const char* ProtocolName(Protocol protocol);

// Returns the ring's protocol for a result of so many bytes. NCCL_PROTO limits the choice as in NCCL ("Simple",
// "^LL128,LL").
Protocol ChooseProtocol(size_t bytes, const char* allowed);

// Returns how many channels (and so thread blocks) work on a result of so many bytes.
int ChooseChannels(size_t bytes);

// Says whether symmetric kernels exist: for all-gather of any type, and for all-reduce and reduce-scatter sums of
// floats up to 32 bits; from 2.30.3 on for averages of such floats too.
bool HasSymmetricKernel(CollectiveKind kind, ncclDataType_t type, ncclRedOp_t operation, int version);

// Says whether copy engines move the data of symmetric windows, without a kernel: an all-gather's where the
// communicator's policy (ncclConfig_t::CTAPolicy) is to use no SMs.
bool UsesCopyEngines(CollectiveKind kind, int policy, int version);

// Returns the name of the symmetric kernel without multicast.
const char* SymmetricKernelName(CollectiveKind kind, size_t bytes, int ranks);

}  // namespace commpool::internal::emulated_nccl
