// Writes the race checker's reports: which operation, where it was issued, what it touched, and in which block.
#pragma once

#include <string>
#include <vector>

#include "src/emulator/cuda/access_history.h"
#include "src/emulator/cuda/operation.h"

namespace commpool::internal::emulator {

// The later operation saw offset 0 of the memory at `base`.
std::string DescribeRace(const Operation& later, AccessKind kind, CUdeviceptr base, const Conflict& conflict);

std::string DescribeMisuse(const Operation& operation, const commpoolEmulatorRange& range, const std::string& blocks);

// REQUIRES: `accesses` is not empty.
std::string DescribeOpenAccesses(const std::vector<Conflict>& accesses);

}  // namespace commpool::internal::emulator
