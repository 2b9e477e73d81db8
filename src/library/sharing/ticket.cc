#include "src/library/sharing/ticket.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "src/library/base/printable.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

constexpr std::string_view kPrefix = "commpool-ticket-";
constexpr uint64_t kVersion = 1;

uint64_t ChecksumOf(std::string_view text) {
  constexpr HashKey kNoSecret = {};  // against mistakes; the secret is against forgers
  return KeyedHash(kNoSecret, text.data(), text.size());
}

// Cuts a text at its commas, from the front.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }

  std::string_view Next() {
    const size_t comma = rest_.find(',');
    if (comma == std::string_view::npos) ok_ = false;
    const std::string_view field = rest_.substr(0, comma);
    rest_.remove_prefix(ok_ ? comma + 1 : rest_.size());
    return field;
  }
  uint64_t Number(int base = 16) { return Parsed(Next(), base); }
  uint64_t Parsed(std::string_view field, int base) {
    uint64_t number = 0;
    const char* const end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, number, base);
    if (error != std::errc() || stop != end) ok_ = false;
    return number;
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

Status NoTicket(std::string_view text, const std::string& why) {
  constexpr size_t kShown = 40;  // the rest may be a secret
  return InvalidArgument("\"", Printable(text.substr(0, kShown)), "\" ", why);
}

}  // namespace

std::string Hexadecimal(uint64_t number, int digits) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%0*llx", digits, static_cast<unsigned long long>(number));
  return text.data();
}

std::string Ticket::Text() const {
  std::string fields = Hexadecimal(secret[0], 16) + Hexadecimal(secret[1], 16);
  for (const uint64_t number : {process, pool}) fields += "," + Hexadecimal(number);
  fields += "," + device;
  for (const uint64_t number : {block, address, bytes}) fields += "," + Hexadecimal(number);
  fields += "," + socket;
  return std::string(kPrefix) + std::to_string(kVersion) + "," + Hexadecimal(ChecksumOf(fields), 16) + "," + fields;
}

Result<Ticket> Ticket::Parse(std::string_view text) {
  // A file, a pipe or a terminal brings some with it.
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  if (text.substr(0, kPrefix.size()) != kPrefix) return NoTicket(text, "is no ticket of commpool");
  const Status damaged = NoTicket(text, "is a ticket that was cut or changed: pass on all of it");
  Fields fields(text.substr(kPrefix.size()));
  const uint64_t version = fields.Number(10);
  if (!fields.ok() || version == 0) return damaged;
  if (version > kVersion) {
    return NotSupported("the ticket is of a newer commpool, version ", version,
                        " of tickets: this one knows versions up to ", kVersion);
  }
  const uint64_t checksum = fields.Number();
  if (!fields.ok() || checksum != ChecksumOf(fields.rest())) return damaged;
  Ticket ticket;
  const std::string_view secret = fields.Next();
  constexpr size_t kHalf = 16;
  if (secret.size() != 2 * kHalf) return damaged;
  ticket.secret = {fields.Parsed(secret.substr(0, kHalf), 16), fields.Parsed(secret.substr(kHalf), 16)};
  ticket.process = fields.Number();
  ticket.pool = fields.Number();
  ticket.device = fields.Next();
  ticket.block = fields.Number();
  ticket.address = fields.Number();
  ticket.bytes = fields.Number();
  if (!fields.ok() || fields.rest().empty()) return damaged;
  ticket.socket = fields.rest();
  return ticket;
}

}  // namespace commpool::internal
