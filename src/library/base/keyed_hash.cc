#include "src/library/base/keyed_hash.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

namespace commpool::internal {

namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

struct SipState {
  uint64_t v0, v1, v2, v3;

  explicit SipState(const HashKey& key)
      : v0(key[0] ^ 0x736f6d6570736575),
        v1(key[1] ^ 0x646f72616e646f6d),
        v2(key[0] ^ 0x6c7967656e657261),
        v3(key[1] ^ 0x7465646279746573) {}

  void Round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  void Take(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }

  uint64_t Finish() {
    v2 ^= 0xff;
    for (int round = 0; round < 4; ++round) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

uint64_t KeyedHash(const HashKey& key, const void* data, size_t bytes) {
  SipState state(key);
  const char* const begin = static_cast<const char*>(data);
  const size_t whole = bytes - bytes % sizeof(uint64_t);
  for (size_t place = 0; place < whole; place += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, begin + place, sizeof(word));
    state.Take(word);
  }
  uint64_t last = 0;
  if (bytes > whole) std::memcpy(&last, begin + whole, bytes - whole);
  state.Take(last | uint64_t{bytes} << 56);  // the format ends in the lowest byte of the length
  return state.Finish();
}

Result<HashKey> RandomKey() {
  HashKey key{};
  // getrandom never returns a part of up to 256 bytes.
  while (getrandom(key.data(), sizeof(key), 0) != static_cast<ssize_t>(sizeof(key))) {
    if (errno == EINTR) continue;
    return Status(StatusCode::kInternal, std::string("the system gives no random numbers: ") + strerror(errno));
  }
  return key;
}

}  // namespace commpool::internal
