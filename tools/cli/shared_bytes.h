// What `commpool share` puts into a block and `commpool import` finds there. One thread.
#ifndef COMMPOOL_TOOLS_CLI_SHARED_BYTES_H_
#define COMMPOOL_TOOLS_CLI_SHARED_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

using Bytes = std::vector<uint8_t>;

// Bytes that differ from their neighbours and from those a page away.
Bytes PatternOf(uint64_t bytes);
Result<Bytes> ReadFile(const std::string& file);
Status WriteFile(const std::string& file, const Bytes& bytes);
// 64 bits of FNV-1a, in hexadecimal digits.
std::string HashOf(const Bytes& bytes);

// Copies between the host and the device on the device's first stream, and waits.
Status CopyIn(const SoloDevice& device, void* to, const Bytes& bytes);
Status CopyOut(const SoloDevice& device, Bytes& bytes, const void* from);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_SHARED_BYTES_H_
