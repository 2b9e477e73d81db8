#include "src/c_api/structs.h"

#include <string>

#include "commpool/commpool.h"

namespace commpool::internal {

namespace {

// No version's struct is larger: it never was initialised.
constexpr size_t kMostBytes = 4096;

std::string Version() {
  return std::to_string(COMMPOOL_VERSION_MAJOR) + "." + std::to_string(COMMPOOL_VERSION_MINOR) + "." +
         std::to_string(COMMPOOL_VERSION_PATCH);
}

}  // namespace

Status CheckStructBytes(const StructName& name, size_t given_bytes) {
  if (given_bytes >= name.first_bytes && given_bytes <= kMostBytes) return Status();
  return Status(StatusCode::kInvalidArgument, std::string(name.what) + ": struct_bytes is " +
                                                  std::to_string(given_bytes) + ": call " + name.init +
                                                  " before anything else is set");
}

Status CheckUnknownBytes(const StructName& name, const void* given, size_t given_bytes, size_t known_bytes) {
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (size_t place = known_bytes; place < given_bytes; ++place) {
    if (bytes[place] == 0) continue;
    return Status(StatusCode::kNotSupported,
                  std::string(name.what) + ": the program was built against a newer commpool, whose struct has " +
                      std::to_string(given_bytes) + " bytes, and sets byte " + std::to_string(place) +
                      "; this library, version " + Version() + ", knows the first " + std::to_string(known_bytes) +
                      ": install the newer library, or leave the newer options at 0");
  }
  return Status();
}

void WriteBytes(const void* answer, size_t known_bytes, void* given, size_t bytes) {
  std::memcpy(given, answer, std::min(known_bytes, bytes));
  if (bytes > known_bytes) std::memset(static_cast<char*>(given) + known_bytes, 0, bytes - known_bytes);
}

}  // namespace commpool::internal
