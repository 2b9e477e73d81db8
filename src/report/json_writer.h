// Writes JSON as a stream, in bounded memory. The text is safe inside of a page: each `<` is `\u003c`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace commpool::internal::report {

// The largest number that scripts hold without rounding.
inline constexpr int64_t kLargestInJson = (int64_t{1} << 53) - 1;

// Commas are its own work. Not thread-safe.
class JsonWriter {
 public:
  explicit JsonWriter(std::ostream& out) : out_(&out) {}
  ~JsonWriter() { Flush(); }
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }
  // A value follows.
  void Key(std::string_view key);
  // Larger numbers become kLargestInJson.
  void Number(int64_t number);
  void Number(uint64_t number) {
    Number(static_cast<int64_t>(number < uint64_t{kLargestInJson} ? number : uint64_t{kLargestInJson}));
  }
  template <std::integral Value>
  void Number(Value number) {
    Number(static_cast<int64_t>(number));
  }
  // What is no UTF-8 becomes marks of replacement.
  void Text(std::string_view text);
  void Null();

 private:
  void Open(char bracket);
  void Close(char bracket);
  void Separate();
  void WriteText(std::string_view text);
  void FlushIfFull() {
    if (buffer_.size() >= kBuffer) Flush();
  }
  void Flush();

  static constexpr size_t kBuffer = 1 << 16;
  std::ostream* out_;
  std::string buffer_;
  bool first_ = true;  // of its object, array or key: no comma goes before
};

}  // namespace commpool::internal::report
