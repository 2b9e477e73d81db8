// The fields of a struct as bytes: numbers of 7 bits a byte, the lowest first, so that most take one to four.
//
// A struct has one list of its fields, Fields (field_list.h), in their order. That list alone writes it and reads it.
// Messages of ranks and entries of recordings are such structs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal {

template <typename Value>
concept IsNumber = std::is_arithmetic_v<Value> || std::is_enum_v<Value>;

// Appends fields to bytes that the caller owns. It never writes past `room`: see `fits()`.
class FieldWriter {
 public:
  FieldWriter(char* bytes, size_t room) : bytes_(bytes), room_(room) {}

  // A small negative number is short too.
  template <IsNumber Value>
  void Write(Value value) {
    auto number = static_cast<uint64_t>(value);
    if constexpr (std::is_signed_v<Value>) number = number << 1 ^ static_cast<uint64_t>(int64_t{value} >> 63);
    for (; number >= 0x80; number >>= 7) Byte(static_cast<unsigned char>(number) | 0x80u);
    Byte(static_cast<unsigned char>(number));
  }
  void Write(std::string_view text) {
    Write(text.size());
    if (used_ + text.size() <= room_) std::memcpy(bytes_ + used_, text.data(), text.size());
    used_ += text.size();
  }
  void Write(const Status& status) {
    Write(status.code());
    Write(status.message());
  }
  template <typename Item, size_t N>
  void Write(const std::array<Item, N>& items) {
    for (const Item& item : items) Write(item);
  }
  template <typename Item>
  void Write(const std::vector<Item>& items) {
    Write(items.size());
    for (const Item& item : items) Write(item);
  }
  template <typename Item>
  void Write(const std::optional<Item>& item) {
    Write(item.has_value());
    if (item) Write(*item);
  }
  template <typename Entry>
  requires requires { typename Entry::Fields; }
  void Write(const Entry& entry) {
    Entry::Fields::Each(entry, [&](const auto& field) { Write(field); });
  }

  // Whether all that was written had room; otherwise the bytes are no fields. How many there were is right also then.
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

// Reads what FieldWriter wrote. After a read past the end, of a number that is none, and of a value that its field
// cannot have (a struct may refuse its values by `Valid()`), `ok()` is false and what is read then is zero.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  template <IsNumber Value>
  void Read(Value& value) {
    uint64_t number = Number();
    if constexpr (std::is_signed_v<Value>) number = number >> 1 ^ (~(number & 1) + 1);
    value = static_cast<Value>(number);
    if (static_cast<uint64_t>(value) != number) Fail();
  }
  void Read(std::string& text) {
    const uint64_t bytes = Number();
    if (bytes > rest_.size()) FailAtTheEnd();
    text = rest_.substr(0, ok_ ? bytes : 0);
    rest_.remove_prefix(text.size());
  }
  void Read(Status& status) {
    StatusCode code = StatusCode::kOk;
    std::string message;
    Read(code);
    Read(message);
    if (code == StatusCode::kOk && !message.empty()) Fail();  // nobody writes that
    status = code == StatusCode::kOk ? Status() : Status(code, message);
  }
  template <typename Item, size_t N>
  void Read(std::array<Item, N>& items) {
    for (Item& item : items) Read(item);
  }
  template <typename Item>
  void Read(std::vector<Item>& items) {
    items.clear();
    for (uint64_t left = Number(); left > 0 && ok_; --left) Read(items.emplace_back());
  }
  template <typename Item>
  void Read(std::optional<Item>& item) {
    bool has = false;
    Read(has);
    if (has) Read(item.emplace());
  }
  template <typename Entry>
  requires requires { typename Entry::Fields; }
  void Read(Entry& entry) {
    Entry::Fields::Each(entry, [&](auto& field) { Read(field); });
    if constexpr (requires { entry.Valid(); }) {
      if (!entry.Valid()) Fail();
    }
  }

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  bool past_the_end() const { return past_the_end_; }
  size_t left() const { return rest_.size(); }

 private:
  uint64_t Number() {
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      number |= static_cast<uint64_t>(byte & 0x7fu) << shift;
      if ((byte & 0x80u) == 0) return number;
    }
    FailAtTheEnd();
    return 0;
  }
  void FailAtTheEnd() {
    past_the_end_ = past_the_end_ || ok_;
    Fail();
  }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
  bool past_the_end_ = false;
};

}  // namespace commpool::internal
