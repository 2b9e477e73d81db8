// Bytes of the host, for blocks that commands share, import or sum. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

using Bytes = std::vector<uint8_t>;

// Of zeros. kOutOfMemory where the host has not so many.
Result<Bytes> MakeBytes(uint64_t bytes);
// Bytes that differ from their neighbours and from those a page away.
Result<Bytes> PatternOf(uint64_t bytes);
// kInvalidArgument for what is no file with an end.
Result<uint64_t> SizeOfFile(const std::string& file);
Result<Bytes> ReadFile(const std::string& file, uint64_t bytes);
Status WriteFile(const std::string& file, const Bytes& bytes);
// 64 bits of FNV-1a, in hexadecimal digits.
std::string HashOf(const Bytes& bytes);

}  // namespace commpool::cli
