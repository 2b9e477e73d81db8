#include "tools/cli/sizes.h"

#include "src/library/base/bytes.h"

namespace commpool::cli {

Result<std::vector<uint64_t>> ParseSizes(const std::string& text, uint64_t unit) {
  const size_t colon = text.find(':');
  Result<uint64_t> least = internal::ParseBytes(text.substr(0, colon));
  if (!least.ok()) return least.status();
  Result<uint64_t> most = colon == std::string::npos ? least : internal::ParseBytes(text.substr(colon + 1));
  if (!most.ok()) return most.status();
  if (*least < unit || *least > *most || *most > 64 * internal::kGiB) {
    return Status(StatusCode::kInvalidArgument, "\"" + text + "\" are no sizes: write LEAST:MOST, at least " +
                                                    std::to_string(unit) + " and at most 64G, the smaller first");
  }
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = *least; bytes <= *most; bytes *= 2) sizes.push_back(internal::RoundDown(bytes, unit));
  return sizes;
}

std::string WhyNoSize(const std::string& text) { return internal::ParseBytes(text).status().message(); }

std::string WhyNoSizes(const std::string& text) { return ParseSizes(text).status().message(); }

}  // namespace commpool::cli
