#include "tools/cli/shared_bytes.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::cli {

namespace {

Status CannotUse(const char* verb, const std::string& file) {
  return Status(StatusCode::kInvalidArgument, std::string("cannot ") + verb + " " + file + ": " + std::strerror(errno));
}

}  // namespace

Result<Bytes> MakeBytes(uint64_t bytes) {
  try {
    return Bytes(bytes);
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error
    return Status(StatusCode::kOutOfMemory, "the host has no memory for " + internal::FormatBytes(bytes));
  }
}

Result<Bytes> PatternOf(uint64_t bytes) {
  Bytes pattern = COMMPOOL_TRY(MakeBytes(bytes));
  for (uint64_t place = 0; place < bytes; ++place) pattern[place] = static_cast<uint8_t>(place * 7 + (place >> 12));
  return pattern;
}

Result<uint64_t> SizeOfFile(const std::string& file) {
  struct stat facts = {};
  if (stat(file.c_str(), &facts) != 0) return CannotUse("read", file);
  if (!S_ISREG(facts.st_mode)) {
    return Status(StatusCode::kInvalidArgument, "cannot read " + file + ": it is a folder or a device, and no file");
  }
  if (facts.st_size == 0) return Status(StatusCode::kInvalidArgument, file + " has no bytes to share");
  return static_cast<uint64_t>(facts.st_size);
}

Result<Bytes> ReadFile(const std::string& file, uint64_t bytes) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open()) return CannotUse("read", file);
  Bytes read = COMMPOOL_TRY(MakeBytes(bytes));
  stream.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(bytes));
  if (stream) return read;
  return Status(StatusCode::kInvalidArgument, "cannot read " + file + ": it is shorter now");
}

Status WriteFile(const std::string& file, const Bytes& bytes) {
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  return stream ? Status() : CannotUse("write", file);
}

std::string HashOf(const Bytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace commpool::cli
