#include "src/library/base/keyed_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace commpool::internal {
namespace {

// The bytes 0, 1, 2, ... are the published vectors' key and messages.
constexpr HashKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::array<unsigned char, 64> Counting() {
  std::array<unsigned char, 64> bytes{};
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  return bytes;
}

TEST(KeyedHash, IsThatOfTheReferenceForEveryLengthUpToTwoWords) {
  // SipHash-2-4 of the first n bytes, from the reference implementation's table.
  constexpr std::array<uint64_t, 16> kReference = {
      0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
      0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
      0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
      0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5};
  const auto message = Counting();
  for (size_t bytes = 0; bytes < kReference.size(); ++bytes) {
    EXPECT_EQ(KeyedHash(kKey, message.data(), bytes), kReference[bytes]) << bytes << " bytes";
  }
}

TEST(KeyedHash, DependsOnEveryBitOfKeyAndMessage) {
  const auto message = Counting();
  const uint64_t whole = KeyedHash(kKey, message.data(), message.size());
  for (size_t bit = 0; bit < 8 * message.size(); ++bit) {
    auto changed = message;
    changed[bit / 8] = static_cast<unsigned char>(changed[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_NE(KeyedHash(kKey, changed.data(), changed.size()), whole) << "bit " << bit;
  }
  for (size_t bit = 0; bit < 128; ++bit) {
    HashKey changed = kKey;
    changed[bit / 64] ^= uint64_t{1} << (bit % 64);
    EXPECT_NE(KeyedHash(changed, message.data(), message.size()), whole) << "key bit " << bit;
  }
}

TEST(RandomKey, IsAnotherEachTime) { EXPECT_NE(RandomKey().value(), RandomKey().value()); }

}  // namespace
}  // namespace commpool::internal
