// The known word that somebody who wrote another one is likely to have meant. Pure function: any thread.
#ifndef COMMPOOL_SRC_BASE_NEAREST_H_
#define COMMPOOL_SRC_BASE_NEAREST_H_

#include <span>
#include <string_view>

namespace commpool::internal {

// The word that takes the fewest letters inserted, dropped or replaced; the first of several; empty for no words.
std::string_view Nearest(std::string_view written, std::span<const std::string_view> words);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_NEAREST_H_
