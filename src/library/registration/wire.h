// The messages of ranks as bytes. Little-endian, like every host that has a GPU.
//
// A message is a struct with a name, kName, and one list of its fields (base/fields.h). Each message begins with a
// hello. So a message of another build, or one that was cut or damaged, is an error that names both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/fields.h"
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

// The bytes behind a hello of this version and kind; else the error, which names sender and reader.
Result<std::string_view> OpenMessage(std::string_view bytes, const char* name, size_t sender,
                                     const std::string& reader);
// The size of a message with its hello, as the hello says; 0 where there is no hello.
size_t SizeOfMessage(std::string_view bytes);
std::string SealMessage(const char* name, const std::string& contents);
// kDisagreement: the message has other fields than its reader knows.
Status FieldsDiffer(const FieldReader& rest, std::string_view contents, const char* name, size_t sender,
                    const std::string& reader);
// kDisagreement: the message has another version than its reader.
Status VersionsDiffer(size_t sender, uint32_t version, const std::string& reader, uint32_t own);
// Checks the messages of all ranks, rank 0's first. kDisagreement where one is no message, or has another version than
// rank 0's.
Status CheckVersions(const std::vector<std::string>& messages, const char* name);

template <typename Message>
std::string Encode(const Message& message) {
  FieldWriter measured(nullptr, 0);
  measured.Write(message);
  std::string contents(measured.used(), '\0');
  FieldWriter(contents.data(), contents.size()).Write(message);
  return SealMessage(Message::kName, contents);
}

template <typename Message>
Result<Message> Decode(std::string_view bytes, size_t sender, const std::string& reader = "this rank") {
  const std::string_view contents = COMMPOOL_TRY(OpenMessage(bytes, Message::kName, sender, reader));
  Message message;
  FieldReader fields(contents);
  fields.Read(message);
  if (!fields.ok() || !fields.at_end()) return FieldsDiffer(fields, contents, Message::kName, sender, reader);
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
