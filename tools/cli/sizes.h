// Parses the sizes of a command line. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// "8K:64M": powers of two from one to the other; "1M": only that size. Multiples of `unit`, at least one unit.
Result<std::vector<uint64_t>> ParseSizes(const std::string& text, uint64_t unit = sizeof(float));

// Why an option's text is not a size, or not sizes; empty for a valid one. Used while the command line is parsed.
std::string WhyNoSize(const std::string& text);
std::string WhyNoSizes(const std::string& text);

}  // namespace commpool::cli
