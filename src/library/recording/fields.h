// The fields of an entry as bytes: numbers of 7 bits a byte, the lowest first, so that most take one to four.
//
// An entry is a struct with one list of its fields, Fields(). That list alone writes it and reads it.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_FIELDS_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_FIELDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace commpool::internal {

// Appends fields to bytes that the caller owns. It never writes past `room`: see `fits()`.
class FieldWriter {
 public:
  FieldWriter(char* bytes, size_t room) : bytes_(bytes), room_(room) {}

  void Write(uint64_t number) {
    while (number >= 0x80) {
      Byte(static_cast<unsigned char>(number) | 0x80u);
      number >>= 7;
    }
    Byte(static_cast<unsigned char>(number));
  }
  // A small negative number is short too.
  void Write(int64_t number) { Write(static_cast<uint64_t>(number) << 1 ^ static_cast<uint64_t>(number >> 63)); }
  void Write(std::string_view text) {
    Write(uint64_t{text.size()});
    if (used_ + text.size() <= room_) std::memcpy(bytes_ + used_, text.data(), text.size());
    used_ += text.size();
  }
  template <typename Value>
  requires std::is_enum_v<Value>
  void Write(Value value) { Write(static_cast<uint64_t>(value)); }
  template <typename Entry>
  requires requires { Entry::Fields(); }
  void Write(const Entry& entry) {
    std::apply([&](auto... field) { (Write(entry.*field), ...); }, Entry::Fields());
  }

  // Whether all that was written had room; otherwise the bytes are no entry.
  bool fits() const { return used_ <= room_; }
  size_t used() const { return used_; }

 private:
  void Byte(unsigned char byte) {
    if (used_ < room_) bytes_[used_] = static_cast<char>(byte);
    ++used_;
  }

  char* const bytes_;
  const size_t room_;
  size_t used_ = 0;
};

// Reads what FieldWriter wrote. After a read past the end, or of a number that is none, `ok()` is false and the fields
// are zeros.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  void Read(uint64_t& number) {
    number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      number |= static_cast<uint64_t>(byte & 0x7fu) << shift;
      if ((byte & 0x80u) == 0) return;
    }
    number = 0;
    Fail();
  }
  void Read(int64_t& number) {
    uint64_t folded = 0;
    Read(folded);
    number = static_cast<int64_t>(folded >> 1 ^ (~(folded & 1) + 1));
  }
  void Read(std::string& text) {
    uint64_t bytes = 0;
    Read(bytes);
    if (bytes > rest_.size()) Fail();
    text = rest_.substr(0, ok_ ? bytes : 0);
    rest_.remove_prefix(text.size());
  }
  template <typename Value>
  requires std::is_enum_v<Value>
  void Read(Value& value) {
    uint64_t number = 0;
    Read(number);
    value = static_cast<Value>(number);
    if (static_cast<uint64_t>(value) != number) Fail();
  }
  template <typename Entry>
  requires requires { Entry::Fields(); }
  void Read(Entry& entry) {
    std::apply([&](auto... field) { (Read(entry.*field), ...); }, Entry::Fields());
  }

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_FIELDS_H_
