// What NCCL would choose and how long it would take: kernels, protocols and virtual times. Pure functions: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_MODEL_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_MODEL_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace commpool::internal::emulated_nccl {

// kTransfers is what a group's sends and receives become.
enum class CollectiveKind : uint32_t { kAllReduce, kAllGather, kBroadcast, kReduceScatter, kReduce, kTransfers };

// "AllReduce", as NCCL's log names it.
const char* CollectiveName(CollectiveKind kind);

// Bytes of the whole result: the unit of the model.
size_t ResultBytes(CollectiveKind kind, size_t count, size_t element_bytes, int ranks);

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

// Virtual microseconds of one collective, interpolated between measured sizes.
double CollectiveMicroseconds(CollectiveKind kind, size_t bytes, int ranks, bool symmetric);

// The same of sends and receives that move so many bytes in either direction.
double TransferMicroseconds(size_t bytes);

// Virtual microseconds of host time.
inline constexpr double kLocalRegistrationMicroseconds = 3;
inline constexpr double kFirstUseMicroseconds = 150;
inline constexpr double kWindowRegistrationMicroseconds = 30000;
inline constexpr double kWindowDeregistrationMicroseconds = 500;

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_MODEL_H_
