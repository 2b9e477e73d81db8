// Ranks, as messages name them.
#ifndef COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_
#define COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

namespace commpool::internal {

inline std::string RankName(size_t rank) { return "rank " + std::to_string(rank); }

// "2, 5 and 4 others": at most `most` numbers, however many ranks there are.
inline std::string SomeOf(const std::vector<size_t>& ranks, size_t most, const char* separator) {
  std::string names;
  for (size_t place = 0; place < ranks.size() && place < most; ++place) {
    names += (place == 0 ? "" : separator) + std::to_string(ranks[place]);
  }
  return ranks.size() <= most ? names : names + " and " + std::to_string(ranks.size() - most) + " others";
}

inline std::string SentUnreadable(size_t rank, const char* what) {
  return RankName(rank) + " sent an unreadable " + what + ": do all ranks run the same build of commpool?";
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_RANK_NAMES_H_
