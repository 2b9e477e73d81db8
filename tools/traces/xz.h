// Decompression of .xz. Pure: any thread.
#pragma once

#include <string>

#include "commpool/status.h"

namespace commpool::cli {

// `file` is only for the error: kInvalidArgument where the bytes are no complete .xz file, or hold more than 1 GiB.
Result<std::string> DecompressXz(const std::string& file, const std::string& compressed);

}  // namespace commpool::cli
