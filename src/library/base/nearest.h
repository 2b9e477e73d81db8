// Guesses which known word a misspelt word means. Pure function: any thread.
#pragma once

#include <span>
#include <string_view>

namespace commpool::internal {

// The known word that needs the fewest inserted, removed or replaced letters; the first of several; empty for no words.
std::string_view Nearest(std::string_view written, std::span<const std::string_view> words);

}  // namespace commpool::internal
