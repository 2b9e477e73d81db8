#include "src/report/words.h"

#include <algorithm>
#include <charconv>

namespace commpool::internal::report {

std::string Counted(uint64_t count, const std::string& thing) {
  return InThousands(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string Are(uint64_t count) { return count == 1 ? "is" : "are"; }

std::string InWords(int64_t nanoseconds) {
  if (nanoseconds < 0) return "-" + InWords(-nanoseconds);
  int64_t unit = 1;
  const char* name = " ns";
  for (const char* next : {" us", " ms", " s"}) {
    if (nanoseconds < unit * 1000) break;
    unit *= 1000;
    name = next;
  }
  const int64_t tenths = nanoseconds / (unit / 10 > 0 ? unit / 10 : 1) % 10;
  const bool small = nanoseconds / unit < 10 && unit > 1 && tenths != 0;
  return InThousands(static_cast<uint64_t>(nanoseconds / unit)) + (small ? "." + std::to_string(tenths) : "") + name;
}

std::string InThousands(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

std::string InHex(uint64_t number) {
  char digits[16];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), number, 16);
  return "0x" + std::string(digits, end);
}

std::string RanksInWords(const std::vector<int64_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t place = 0; place < ranks.size() && place < kMostNamed; ++place) {
    text += (place == 0 ? "" : ", ") + std::to_string(ranks[place]);
  }
  return ranks.size() > kMostNamed ? text + " and " + std::to_string(ranks.size() - kMostNamed) + " more" : text;
}

}  // namespace commpool::internal::report
