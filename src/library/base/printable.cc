#include "src/library/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace commpool::internal {

namespace {

// The length of the UTF-8 character that the text begins with; 0 for an invalid one.
size_t CharacterBytes(std::string_view text) {
  const auto at = [&](size_t place) { return static_cast<unsigned char>(text[place]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 0 || text.size() < bytes) return 0;
  // Refuses characters in more bytes than they need, halves of a surrogate pair, and numbers above the last character.
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return 0;
  for (size_t place = 2; place < bytes; ++place) {
    if ((at(place) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// Escapes one byte: an ASCII character, or a byte that belongs to no valid character.
std::string Escaped(char character) {
  if (character == '\n') return "\\n";
  if (character == '\t') return "\\t";
  if (character == '"' || character == '\\') return {'\\', character};
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte < 0x7f) return {character};
  std::array<char, 8> text;
  std::snprintf(text.data(), text.size(), "\\x%02x", byte);
  return text.data();
}

}  // namespace

std::string Printable(std::string_view text, size_t most_bytes) {
  constexpr std::string_view kCut = "...";
  std::string printable;
  size_t kept = 0;  // how much of the result stays if the whole is too long
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const std::string next = bytes > 1 ? std::string(text.substr(0, bytes)) : Escaped(text.front());
    if (printable.size() + next.size() > most_bytes) return printable.substr(0, kept) + std::string(kCut);
    printable += next;
    if (printable.size() + kCut.size() <= most_bytes) kept = printable.size();
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return printable;
}

}  // namespace commpool::internal
