// Sizes to measure, as they are written on the command line. Any thread.
#ifndef COMMPOOL_TOOLS_CLI_SIZES_H_
#define COMMPOOL_TOOLS_CLI_SIZES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// "8K:64M": powers of two from one to the other; "1M": that size alone. Multiples of `unit`, at least one.
Result<std::vector<uint64_t>> ParseSizes(const std::string& text, uint64_t unit = sizeof(float));

// Of an option's text, while the command line is read: why it is no size, or no sizes; empty for one that is.
std::string WhyNoSize(const std::string& text);
std::string WhyNoSizes(const std::string& text);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_SIZES_H_
