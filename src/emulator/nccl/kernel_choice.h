// Which kernel, protocol and channels NCCL would choose. Pure functions: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_KERNEL_CHOICE_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_KERNEL_CHOICE_H_

#include <nccl.h>

#include <cstddef>

#include "src/emulator/nccl/collective_kind.h"

namespace commpool::internal::emulated_nccl {

enum class Protocol { kLowLatency, kLowLatency128, kSimple };

// "LL", "LL128", "SIMPLE", as NCCL's log names them.
const char* ProtocolName(Protocol protocol);

// The ring's protocol for a result of so many bytes; NCCL_PROTO narrows the choice as in NCCL ("Simple", "^LL128,LL").
Protocol ChooseProtocol(size_t bytes, const char* allowed);

// How many channels (and so thread blocks) work on a result of so many bytes.
int ChooseChannels(size_t bytes);

// Whether symmetric kernels exist for it: all-gather of any type; all-reduce and reduce-scatter sums of floats up to 32
// bits. Averages of floats join them with 2.30.3.
bool HasSymmetricKernel(CollectiveKind kind, ncclDataType_t type, ncclRedOp_t operation, int version);

// The name of the symmetric kernel, without multicast.
const char* SymmetricKernelName(CollectiveKind kind, size_t bytes, int ranks);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_KERNEL_CHOICE_H_
