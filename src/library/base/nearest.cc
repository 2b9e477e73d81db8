#include "src/library/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace commpool::internal {

namespace {

// Levenshtein's distance, a row at a time.
size_t Distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view Nearest(std::string_view written, std::span<const std::string_view> words) {
  const auto nearest =
      std::ranges::min_element(words, {}, [&](std::string_view word) { return Distance(written, word); });
  return nearest == words.end() ? std::string_view() : *nearest;
}

}  // namespace commpool::internal
