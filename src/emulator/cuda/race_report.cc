#include "src/emulator/cuda/race_report.h"

#include <algorithm>
#include <cstdio>

#include "src/emulator/cuda/block_table.h"

namespace commpool::internal::emulator {

namespace {

std::string DescribeRange(CUdeviceptr begin, CUdeviceptr end) {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%llx to 0x%llx", static_cast<unsigned long long>(begin),
                static_cast<unsigned long long>(end));
  return text;
}

std::string DescribeIssue(const Operation& operation) {
  return operation.name + " of stream " + std::to_string(operation.stream) + " on device " +
         std::to_string(operation.device);
}

std::string DescribePlace(const Operation& operation) {
  return "issued at " + (operation.place == nullptr ? operation.issued_at.Describe() : operation.place);
}

// Finds the declared range of an operation that contains the address.
const commpoolEmulatorRange* DeclaredAround(const Operation& operation, AccessKind kind, CUdeviceptr address) {
  const auto& ranges = kind == AccessKind::kRead ? operation.reads : operation.writes;
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const commpoolEmulatorRange& range) {
    return address - range.address < range.bytes;
  });
  return found == ranges.end() ? nullptr : &*found;
}

std::string DescribeAccess(const Operation& operation, AccessKind kind, CUdeviceptr address) {
  std::string text = DescribeIssue(operation) + (kind == AccessKind::kRead ? " reads " : " writes ");
  const commpoolEmulatorRange* const range = DeclaredAround(operation, kind, address);
  if (range != nullptr) text += DescribeRange(range->address, range->address + range->bytes);
  for (const auto& block : operation.blocks) {
    if (address - block->address < block->bytes) text += " (" + block->Describe() + ")";
  }
  return text + ", " + DescribePlace(operation);
}

}  // namespace

std::string DescribeRace(const Operation& later, AccessKind kind, CUdeviceptr base, const Conflict& conflict) {
  const Access& earlier = conflict.earlier;
  return "nothing orders these two, which share " + std::to_string(conflict.end - conflict.begin) + " bytes at " +
         DescribeRange(base + conflict.begin, base + conflict.end) + ": " +
         DescribeAccess(*earlier.operation, conflict.earlier_kind, earlier.base + conflict.begin) + "; and " +
         DescribeAccess(later, kind, base + conflict.begin);
}

std::string DescribeMisuse(const Operation& operation, const commpoolEmulatorRange& range, const std::string& blocks) {
  return DescribeIssue(operation) + " declares " + DescribeRange(range.address, range.address + range.bytes) +
         ", in the " + blocks + "; " + DescribePlace(operation);
}

std::string DescribeOpenAccesses(const std::vector<Conflict>& accesses) {
  const Conflict& first = accesses.front();
  std::string text = "on hardware this may still run: " +
                     DescribeAccess(*first.earlier.operation, first.earlier_kind, first.earlier.base + first.begin);
  if (accesses.size() > 1) text += "; and " + std::to_string(accesses.size() - 1) + " accesses more";
  return text;
}

}  // namespace commpool::internal::emulator
