// The messages of ranks as bytes. Little-endian, like every host that has a GPU.
//
// A message is a struct with a name, kName, and one list of its fields, Fields(), in their order on the wire. That list
// alone writes the message, reads it, and tells which fields ranks compare (intent.h). Each message begins with a
// hello. So a message of another build, or one that was cut or damaged, is an error that names both sides.
#ifndef COMMPOOL_SRC_LIBRARY_REGISTRATION_WIRE_H_
#define COMMPOOL_SRC_LIBRARY_REGISTRATION_WIRE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/try.h"

namespace commpool::internal {

// Count it up whenever a message changes.
inline constexpr uint32_t kWireVersion = 5;

// The first bytes of a message. They are the same in every version, so builds that do not understand each other can say
// so.
struct WireHello {
  static constexpr uint32_t kMagic = 0x6c6f6f70;  // "pool"

  uint32_t magic = kMagic;
  uint32_t version = kWireVersion;
  uint32_t kind = 0;      // a hash of the message's name
  uint32_t bytes = 0;     // behind the hello
  uint64_t checksum = 0;  // of kind and bytes: a program's own all-gather may damage or mix up messages
};
static_assert(sizeof(WireHello) == 24);

// FNV-1a, of a message's bytes, and of words.
constexpr uint64_t kHashStart = 0xcbf29ce484222325;
constexpr uint64_t HashOn(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x100000001b3; }

// An entry of a list of fields is a pointer to a member, or a struct that has the pointer as `value` and says more
// about the field (SameOnAll).
template <typename Message, typename Value>
constexpr auto MemberOf(Value Message::*member) {
  return member;
}
template <typename Field>
constexpr auto MemberOf(const Field& field) {
  return field.value;
}

// Writes the fields of one message, one after the other.
class WireWriter {
 public:
  // Writes numbers, and structs with a list of fields.
  template <typename Value>
  void Write(const Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
      const auto number = static_cast<uint64_t>(value);
      bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    } else {
      std::apply([&](const auto&... field) { (Write(value.*MemberOf(field)), ...); }, Value::Fields());
    }
  }
  void Write(const std::string& text) {
    Write(text.size());
    bytes_.append(text);
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
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads the fields of one message. Check `complete()` once, at the end. It is false after a read past the end (such
// reads give zeros), after a value that its field cannot have (a struct may refuse its values by `Valid()`), and where
// bytes are left over.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  template <typename Value>
  void Read(Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
      const uint64_t number = Number();
      value = static_cast<Value>(number);
      if (static_cast<uint64_t>(value) != number) Fail();
    } else {
      std::apply([&](const auto&... field) { (Read(value.*MemberOf(field)), ...); }, Value::Fields());
      if constexpr (requires { value.Valid(); }) {
        if (!value.Valid()) Fail();
      }
    }
  }
  void Read(std::string& text) { text = Take(Number()); }
  void Read(Status& status) {
    StatusCode code = StatusCode::kOk;
    std::string message;
    Read(code);
    Read(message);
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
  bool past_the_end() const { return past_the_end_; }
  bool complete() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  uint64_t Number() {
    uint64_t value = 0;
    const std::string_view bytes = Take(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string_view Take(uint64_t count) {
    if (ok_ && count > rest_.size()) past_the_end_ = true;
    if (count > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, ok_ ? count : 0);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
  bool past_the_end_ = false;
};

// The bytes behind a hello of this version and kind; else the error, which names sender and reader.
Result<std::string_view> OpenMessage(std::string_view bytes, const char* name, size_t sender,
                                     const std::string& reader);
// The size of a message with its hello, as the hello says; 0 where there is no hello.
size_t SizeOfMessage(std::string_view bytes);
std::string SealMessage(const char* name, const std::string& contents);
// kDisagreement: the message has other fields than its reader knows.
Status FieldsDiffer(const WireReader& rest, std::string_view contents, const char* name, size_t sender,
                    const std::string& reader);
// kDisagreement: the message has another version than its reader.
Status VersionsDiffer(size_t sender, uint32_t version, const std::string& reader, uint32_t own);
// Checks the messages of all ranks, rank 0's first. kDisagreement where one is no message, or has another version than
// rank 0's.
Status CheckVersions(const std::vector<std::string>& messages, const char* name);

template <typename Message>
std::string Encode(const Message& message) {
  WireWriter writer;
  writer.Write(message);
  return SealMessage(Message::kName, writer.Take());
}

template <typename Message>
Result<Message> Decode(std::string_view bytes, size_t sender, const std::string& reader = "this rank") {
  const std::string_view contents = COMMPOOL_TRY(OpenMessage(bytes, Message::kName, sender, reader));
  Message message;
  WireReader fields(contents);
  fields.Read(message);
  if (!fields.complete()) return FieldsDiffer(fields, contents, Message::kName, sender, reader);
  return message;
}

// Decodes the messages of all ranks, rank 0's first. Every rank that reads the same bytes gets the same error.
template <typename Message>
Result<std::vector<Message>> DecodeAll(const std::vector<std::string>& messages) {
  if (Status status = CheckVersions(messages, Message::kName); !status.ok()) return status;
  std::vector<Message> all;
  for (const std::string& bytes : messages) {
    Message one = COMMPOOL_TRY(Decode<Message>(bytes, all.size(), "rank 0"));
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_REGISTRATION_WIRE_H_
