#include "src/base/printable.h"

#include <array>
#include <cstdio>

namespace commpool::internal {

namespace {

std::string Escaped(char character) {
  if (character == '\n') return "\\n";
  if (character == '\t') return "\\t";
  if (character == '"' || character == '\'' || character == '\\') return {'\\', character};
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte != 0x7f) return {character};
  std::array<char, 8> text;
  std::snprintf(text.data(), text.size(), "\\x%02x", byte);
  return text.data();
}

bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string Printable(std::string_view text, size_t most_bytes) {
  constexpr std::string_view kCut = "...";
  std::string printable;
  size_t kept = 0;  // of the result, where it has to be cut
  for (const char character : text) {
    const std::string escaped = Escaped(character);
    if (printable.size() + escaped.size() > most_bytes) {
      while (kept > 0 && kept < printable.size() && ContinuesCharacter(printable[kept])) --kept;
      return printable.substr(0, kept) + std::string(kCut);
    }
    printable += escaped;
    if (printable.size() + kCut.size() <= most_bytes) kept = printable.size();
  }
  return printable;
}

}  // namespace commpool::internal
