#include "src/library/registration/wire.h"

#include <cstring>
#include <optional>

#include "src/library/registration/lost_ranks.h"

namespace commpool::internal {

namespace {

// A message's kind is a hash of its name.
uint32_t KindOf(std::string_view name) {
  uint64_t hash = kHashStart;
  for (const char letter : name) hash = HashOn(hash, static_cast<unsigned char>(letter));
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

// If any single bit of the message changes, the checksum changes too.
uint64_t ChecksumOf(uint32_t kind, std::string_view contents) {
  uint64_t hash = HashOn(kHashStart, kind);
  for (; contents.size() >= sizeof(uint64_t); contents.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, contents.data(), sizeof(word));
    hash = HashOn(hash, word);
  }
  for (const char byte : contents) hash = HashOn(hash, static_cast<unsigned char>(byte));
  return hash;
}

std::optional<WireHello> HelloOf(std::string_view bytes) {
  WireHello hello;
  if (bytes.size() < sizeof(hello)) return std::nullopt;
  std::memcpy(&hello, bytes.data(), sizeof(hello));
  return hello.magic == WireHello::kMagic ? std::make_optional(hello) : std::nullopt;
}

Status OtherBuild(const auto&... difference) {
  return Disagreement(difference..., ": do all ranks run the same build of commpool?");
}

Status Unreadable(size_t sender, const char* name) {
  return OtherBuild(RankName(sender), " sent an unreadable ", name);
}

Status SizesDiffer(size_t sender, size_t sent, const char* name, const std::string& reader, const std::string& read) {
  return OtherBuild(RankName(sender), " sent ", sent, " bytes of its ", name, ", ", reader, " reads ", read);
}

}  // namespace

Status VersionsDiffer(size_t sender, uint32_t version, const std::string& reader, uint32_t own) {
  return OtherBuild(RankName(sender), " speaks version ", version, ", ", reader, " version ", own);
}

size_t SizeOfMessage(std::string_view bytes) {
  const std::optional<WireHello> hello = HelloOf(bytes);
  return hello ? sizeof(*hello) + hello->bytes : 0;
}

std::string SealMessage(const char* name, const std::string& contents) {
  WireHello hello{.kind = KindOf(name), .bytes = static_cast<uint32_t>(contents.size())};
  hello.checksum = ChecksumOf(hello.kind, contents);
  std::string message(reinterpret_cast<const char*>(&hello), sizeof(hello));
  return message += contents;
}

Result<std::string_view> OpenMessage(std::string_view bytes, const char* name, size_t sender,
                                     const std::string& reader) {
  const std::optional<WireHello> hello = HelloOf(bytes);
  if (!hello) return Unreadable(sender, name);
  if (hello->version != kWireVersion) return VersionsDiffer(sender, hello->version, reader, kWireVersion);
  if (hello->kind != KindOf(name)) return Unreadable(sender, name);
  bytes.remove_prefix(sizeof(*hello));
  if (bytes.size() != hello->bytes) {
    return SizesDiffer(sender, bytes.size(), name, reader, std::to_string(hello->bytes));
  }
  if (hello->checksum != ChecksumOf(hello->kind, bytes)) {
    return Disagreement(RankName(sender), "'s ", name, " was damaged on its way to ", reader);
  }
  return bytes;
}

Status FieldsDiffer(const FieldReader& rest, std::string_view contents, const char* name, size_t sender,
                    const std::string& reader) {
  if (!rest.past_the_end() && rest.left() == 0) return Unreadable(sender, name);
  return SizesDiffer(sender, contents.size(), name, reader,
                     rest.past_the_end() ? "more" : std::to_string(contents.size() - rest.left()));
}

Status CheckVersions(const std::vector<std::string>& messages, const char* name) {
  std::optional<WireHello> first;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const std::optional<WireHello> hello = HelloOf(messages[rank]);
    if (!hello) return Unreadable(rank, name);
    if (!first) first = hello;
    if (hello->version != first->version) return VersionsDiffer(rank, hello->version, RankName(0), first->version);
  }
  return Status();
}

}  // namespace commpool::internal
