#include "tools/traces/xz.h"

#include <lzma.h>

#include <array>

#include "src/library/base/bytes.h"

namespace commpool::cli {

Result<std::string> DecompressXz(const std::string& file, const std::string& compressed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  lzma_ret result = lzma_stream_decoder(&stream, UINT64_MAX, 0);
  stream.next_in = reinterpret_cast<const uint8_t*>(compressed.data());
  stream.avail_in = compressed.size();
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (result == LZMA_OK && text.size() <= internal::kGiB) {
    stream.next_out = reinterpret_cast<uint8_t*>(piece.data());
    stream.avail_out = piece.size();
    result = lzma_code(&stream, LZMA_FINISH);
    text.append(piece.data(), piece.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (result == LZMA_STREAM_END) return text;
  return Status(StatusCode::kInvalidArgument,
                file + " is no whole .xz file (liblzma's code " + std::to_string(static_cast<int>(result)) + ")");
}

}  // namespace commpool::cli
