// The names of ranks in messages.
#ifndef COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_
#define COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

namespace commpool::internal {

inline std::string RankName(size_t rank) { return "rank " + std::to_string(rank); }

// "2, 5 and 4 others": at most `most` numbers, however many ranks there are.
template <typename Number>
std::string SomeOf(const std::vector<Number>& ranks, size_t most, const char* separator) {
  std::string names;
  for (size_t place = 0; place < ranks.size() && place < most; ++place) {
    names += (place == 0 ? "" : separator) + std::to_string(ranks[place]);
  }
  return ranks.size() <= most ? names : names + " and " + std::to_string(ranks.size() - most) + " others";
}

// "rank 2", "ranks 2, 5 and 4 others".
template <typename Number>
std::string NamesOfRanks(const std::vector<Number>& ranks, size_t most) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + SomeOf(ranks, most, ", ");
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_
