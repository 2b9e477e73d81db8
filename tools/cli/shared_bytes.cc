#include "tools/cli/shared_bytes.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

Status CannotUse(const char* verb, const std::string& file) {
  return Status(StatusCode::kInvalidArgument, std::string("cannot ") + verb + " " + file + ": " + std::strerror(errno));
}

CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

Status Wait(const SoloDevice& device, CUresult copied, const char* call) {
  COMMPOOL_TRY(internal::CheckCuda(device.driver(), copied, {.call = call, .device = 0}));
  return internal::CheckCuda(device.driver(), device.driver().cuda.cuStreamSynchronize(device.streams()[0]),
                             {.call = "cuStreamSynchronize", .device = 0});
}

}  // namespace

Bytes PatternOf(uint64_t bytes) {
  Bytes pattern(bytes);
  for (uint64_t place = 0; place < bytes; ++place) pattern[place] = static_cast<uint8_t>(place * 7 + (place >> 12));
  return pattern;
}

Result<Bytes> ReadFile(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad() || !stream.is_open()) return CannotUse("read", file);
  if (bytes.empty()) return Status(StatusCode::kInvalidArgument, file + " has no bytes to share");
  return bytes;
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

Status CopyIn(const SoloDevice& device, void* to, const Bytes& bytes) {
  return Wait(device,
              device.driver().cuda.cuMemcpyHtoDAsync(AddressOf(to), bytes.data(), bytes.size(), device.streams()[0]),
              "cuMemcpyHtoDAsync");
}

Status CopyOut(const SoloDevice& device, Bytes& bytes, const void* from) {
  return Wait(device,
              device.driver().cuda.cuMemcpyDtoHAsync(bytes.data(), AddressOf(from), bytes.size(), device.streams()[0]),
              "cuMemcpyDtoHAsync");
}

}  // namespace commpool::cli
