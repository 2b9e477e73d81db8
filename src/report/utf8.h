// Whether bytes are characters. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace commpool::internal::report {

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// How many bytes the first character has; 0 where the text does not begin with one. REQUIRES: !text.empty().
size_t BytesOfCharacter(std::string_view text);

// The text, with kReplacement for each byte that is of no character.
std::string AsUtf8(std::string_view text);

}  // namespace commpool::internal::report
