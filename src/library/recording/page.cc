#include "src/library/recording/page.h"

#include <algorithm>
#include <cstring>

namespace commpool::internal::recording {

namespace {

constexpr uint64_t kStart = 0xcbf29ce484222325;
constexpr uint64_t kPrime = 0x100000001b3;

uint64_t HashOn(uint64_t hash, const char* bytes, size_t count) {
  for (size_t done = 0; done < count; done += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + done, std::min(sizeof(word), count - done));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

uint32_t ChecksumOf(const PageHeader& header, std::string_view entries) {
  const uint64_t of_header = HashOn(kStart, reinterpret_cast<const char*>(&header), offsetof(PageHeader, checksum));
  const uint64_t hash = HashOn(of_header, entries.data(), entries.size());
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace commpool::internal::recording
