#include "src/library/base/bytes.h"

#include <array>
#include <cctype>
#include <cstdio>

namespace commpool::internal {

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string Counted(uint64_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

namespace {

// log2 of the unit's size; nothing for an unknown unit.
std::optional<int> UnitShift(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  const size_t letter = std::string_view("KMGTPE").find(static_cast<char>(std::toupper(unit[0])));
  if (letter == std::string_view::npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB" && rest != "ib" && rest != "b") return std::nullopt;
  return static_cast<int>(letter + 1) * 10;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  const auto bad = [&](const char* why) {
    return Status(StatusCode::kInvalidArgument,
                  "\"" + std::string(text) + "\" is not a size (" + why + "): write 4096, 8K, 64M or 1.5GiB");
  };
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  std::string_view unit = digits == std::string_view::npos ? std::string_view() : text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const std::optional<int> shift = UnitShift(unit);
  if (!shift) return bad("unknown unit");

  constexpr uint64_t kFinest = 1000000000000000000;  // smaller parts of a byte are not read
  unsigned __int128 whole = 0;
  unsigned __int128 part = 0;  // in `scale`ths
  uint64_t scale = 1;
  size_t points = 0;
  for (const char letter : number) {
    const auto digit = static_cast<unsigned>(letter - '0');
    if (letter == '.') {
      ++points;
    } else if (points == 0) {
      if (whole >> 64 == 0) whole = whole * 10 + digit;
    } else if (scale < kFinest) {
      part = part * 10 + digit;
      scale *= 10;
    }
  }
  if (points > 1 || number.size() == points) return bad("no number");
  const unsigned __int128 bytes = (whole << *shift) + (part << *shift) / scale;
  if (whole >> 64 != 0 || bytes >> 64 != 0) return bad("more than 64 bits hold");
  return static_cast<uint64_t>(bytes);
}

}  // namespace commpool::internal
