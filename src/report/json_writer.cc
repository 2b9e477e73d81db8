#include "src/report/json_writer.h"

#include <algorithm>
#include <charconv>

#include "src/report/utf8.h"

namespace commpool::internal::report {

void JsonWriter::Flush() {
  out_->write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

void JsonWriter::Separate() {
  if (!first_) buffer_ += ',';
  first_ = false;
  FlushIfFull();
}

void JsonWriter::Open(char bracket) {
  Separate();
  buffer_ += bracket;
  first_ = true;
}

void JsonWriter::Close(char bracket) {
  buffer_ += bracket;
  first_ = false;
}

void JsonWriter::Key(std::string_view key) {
  Separate();
  WriteText(key);
  buffer_ += ':';
  first_ = true;
}

void JsonWriter::Number(int64_t number) {
  Separate();
  char digits[24];
  const int64_t held = std::clamp(number, -kLargestInJson, kLargestInJson);
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), held);
  buffer_.append(digits, end);
}

void JsonWriter::Text(std::string_view text) {
  Separate();
  WriteText(text);
}

void JsonWriter::Null() {
  Separate();
  buffer_ += "null";
}

void JsonWriter::WriteText(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  buffer_ += '"';
  while (!text.empty()) {
    const size_t bytes = BytesOfCharacter(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (bytes == 0) {
      buffer_ += kReplacement;
    } else if (byte == '"' || byte == '\\') {
      buffer_ += '\\';
      buffer_ += text.front();
    } else if (byte < 0x20 || byte == '<' || byte == 0x7f) {
      buffer_ += "\\u00";
      buffer_ += kDigits[byte >> 4];
      buffer_ += kDigits[byte & 0xfu];
    } else {
      buffer_.append(text.data(), bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  buffer_ += '"';
}

}  // namespace commpool::internal::report
