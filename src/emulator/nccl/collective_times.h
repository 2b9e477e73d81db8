// How long NCCL would take in virtual time. Pure functions: any thread.
#pragma once

#include <cstddef>

#include "src/emulator/nccl/collective_kind.h"

namespace commpool::internal::emulated_nccl {

// Returns the virtual microseconds of one collective, interpolated between measured sizes.
double CollectiveMicroseconds(CollectiveKind kind, size_t bytes, int ranks, bool symmetric);

// Returns the same for sends and receives that move so many bytes in either direction.
double TransferMicroseconds(size_t bytes);

// Host time in virtual microseconds.
inline constexpr double kLocalRegistrationMicroseconds = 3;
inline constexpr double kFirstUseMicroseconds = 150;
inline constexpr double kWindowRegistrationMicroseconds = 30000;
inline constexpr double kWindowDeregistrationMicroseconds = 500;

}  // namespace commpool::internal::emulated_nccl
