#include "src/report/utf8.h"

#include <algorithm>
#include <cstdint>

namespace commpool::internal::report {

namespace {

// By the first byte: how long a character is, and its least number, so that none is written longer than it has to be.
struct Form {
  size_t bytes;
  unsigned char mask;
  uint32_t least;
};

constexpr Form FormOf(unsigned char first) {
  if ((first & 0xe0u) == 0xc0u) return {2, 0x1f, 0x80};
  if ((first & 0xf0u) == 0xe0u) return {3, 0x0f, 0x800};
  if ((first & 0xf8u) == 0xf0u) return {4, 0x07, 0x10000};
  return {0, 0, 0};
}

}  // namespace

size_t BytesOfCharacter(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return 1;
  const Form form = FormOf(first);
  if (form.bytes == 0 || text.size() < form.bytes) return 0;
  uint32_t number = first & form.mask;
  for (size_t place = 1; place < form.bytes; ++place) {
    const auto byte = static_cast<unsigned char>(text[place]);
    if ((byte & 0xc0u) != 0x80u) return 0;
    number = number << 6 | (byte & 0x3fu);
  }
  const bool surrogate = number >= 0xd800 && number < 0xe000;
  return number >= form.least && number < 0x110000 && !surrogate ? form.bytes : 0;
}

std::string AsUtf8(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const size_t bytes = BytesOfCharacter(text);
    safe += bytes == 0 ? kReplacement : text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return safe;
}

}  // namespace commpool::internal::report
