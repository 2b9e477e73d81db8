#include "src/registration/intent.h"

namespace commpool::internal {

namespace {

void Write(WireWriter& writer, const std::vector<uint64_t>& numbers) {
  writer.Number(numbers.size());
  for (const uint64_t number : numbers) writer.Number(number);
}

std::vector<uint64_t> ReadNumbers(WireReader& reader) {
  std::vector<uint64_t> numbers;
  const uint64_t count = reader.Number();
  for (uint64_t index = 0; index < count && reader.ok(); ++index) numbers.push_back(reader.Number());
  return numbers;
}

}  // namespace

const char* Name(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kCreate:
      return "create";
    case CollectiveCall::kReserve:
      return "reserve";
    case CollectiveCall::kReclaim:
      return "reclaim";
    case CollectiveCall::kTrim:
      return "trim";
    case CollectiveCall::kRegister:
      return "register_with";
    case CollectiveCall::kDeregister:
      return "deregister";
    case CollectiveCall::kClose:
      return "close";
    case CollectiveCall::kVerify:
      return "verify";
    case CollectiveCall::kSleep:
      return "sleep";
    case CollectiveCall::kWake:
      return "wake";
  }
  return "unknown call";
}

void Write(WireWriter& writer, const Status& status) {
  writer.Number(static_cast<uint64_t>(status.code()));
  writer.Text(status.message());
}

Status ReadStatus(WireReader& reader) {
  const auto code = static_cast<StatusCode>(reader.Number());
  const std::string message = reader.Text();
  return code == StatusCode::kOk ? Status() : Status(code, message);
}

std::string Encode(const Intent& intent) {
  WireWriter writer;
  writer.Number(static_cast<uint64_t>(intent.call));
  for (const uint64_t number : {intent.bytes, intent.segment_index, intent.granularity, intent.memory_left,
                                intent.sequence_count, intent.sequence_hash}) {
    writer.Number(number);
  }
  writer.Number(static_cast<uint64_t>(intent.nccl_version));
  writer.Text(intent.pool);
  writer.Text(intent.options);
  Write(writer, intent.divergence);
  Write(writer, intent.readiness);
  Write(writer, intent.freed);
  writer.Text(intent.claim);
  Write(writer, intent.segments);
  return writer.Take();
}

std::optional<Intent> DecodeIntent(std::string_view bytes) {
  WireReader reader(bytes);
  Intent intent;
  intent.call = static_cast<CollectiveCall>(reader.Number());
  for (uint64_t* number : {&intent.bytes, &intent.segment_index, &intent.granularity, &intent.memory_left,
                           &intent.sequence_count, &intent.sequence_hash}) {
    *number = reader.Number();
  }
  intent.nccl_version = static_cast<int>(reader.Number());
  intent.pool = reader.Text();
  intent.options = reader.Text();
  intent.divergence = ReadStatus(reader);
  intent.readiness = ReadStatus(reader);
  intent.freed = ReadNumbers(reader);
  intent.claim = reader.Text();
  intent.segments = ReadNumbers(reader);
  return reader.ok() ? std::make_optional(std::move(intent)) : std::nullopt;
}

std::string Encode(const Agreed& agreed) {
  WireWriter writer;
  writer.Number(agreed.granularity);
  writer.Number(agreed.least_memory_left);
  writer.Number(static_cast<uint64_t>(agreed.rank_with_least_memory));
  Write(writer, agreed.freed);
  Write(writer, agreed.segments);
  Write(writer, agreed.claims);
  writer.Text(agreed.findings);
  return writer.Take();
}

std::optional<Agreed> DecodeAgreed(std::string_view bytes) {
  WireReader reader(bytes);
  Agreed agreed;
  agreed.granularity = reader.Number();
  agreed.least_memory_left = reader.Number();
  agreed.rank_with_least_memory = static_cast<int>(reader.Number());
  agreed.freed = ReadNumbers(reader);
  agreed.segments = ReadNumbers(reader);
  agreed.claims = ReadStatus(reader);
  agreed.findings = reader.Text();
  return reader.ok() ? std::make_optional(std::move(agreed)) : std::nullopt;
}

}  // namespace commpool::internal
