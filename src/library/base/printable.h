// A program's text, such as a pool's name, in a form that is safe in messages, tables and logs. Pure function: any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace commpool::internal {

inline constexpr size_t kMostNameBytes = 128;

// Writes control characters, double quotes, backslashes and invalid UTF-8 as C escapes. So no name forges a line of a
// log, ends a quotation, or breaks JSON. A text longer than `most_bytes` is cut and ends in "...".
std::string Printable(std::string_view text, size_t most_bytes = kMostNameBytes);

}  // namespace commpool::internal
