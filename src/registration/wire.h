// Numbers and texts as bytes, for the messages that ranks exchange. Little-endian, like every host that has a GPU.
#ifndef COMMPOOL_SRC_REGISTRATION_WIRE_H_
#define COMMPOOL_SRC_REGISTRATION_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace commpool::internal {

class WireWriter {
 public:
  void Number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Text(std::string_view text) {
    Number(text.size());
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads past the end yield zeros and make `ok()` false: check it once, at the end.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t Number() {
    uint64_t value = 0;
    if (rest_.size() < sizeof(value)) return Fail(), 0;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return value;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (size > rest_.size()) return Fail(), std::string();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_WIRE_H_
