#include "src/report/pickle_writer.h"

#include "src/report/utf8.h"

namespace commpool::internal::report {

void PickleWriter::Little(uint64_t number, size_t bytes) {
  for (size_t byte = 0; byte < bytes; ++byte) out_->put(static_cast<char>(number >> (8 * byte)));
}

void PickleWriter::Part() {
  if (open_.empty()) return;
  constexpr uint32_t kBatch = 1000;
  Container& container = open_.back();
  if (container.written == kBatch * container.parts) {
    container.written = 0;
    out_->put(container.end);
    out_->put('(');
  }
  ++container.written;
}

void PickleWriter::Open(char empty, char end, uint32_t parts) {
  Part();
  out_->put(empty);
  out_->put('(');
  open_.push_back({end, parts});
}

void PickleWriter::Close() {
  out_->put(open_.back().end);
  open_.pop_back();
}

void PickleWriter::Leaf(std::string_view bytes) {
  Part();
  Bytes(bytes);
}

void PickleWriter::Number(int64_t number) {
  Part();
  if (number >= 0 && number < 1 << 8) {
    out_->put('K');
    Little(static_cast<uint64_t>(number), 1);
  } else if (number >= 0 && number < 1 << 16) {
    out_->put('M');
    Little(static_cast<uint64_t>(number), 2);
  } else if (number >= INT32_MIN && number <= INT32_MAX) {
    out_->put('J');
    Little(static_cast<uint64_t>(number), 4);
  } else {
    Bytes("\x8a\x08");
    Little(static_cast<uint64_t>(number), 8);
  }
}

void PickleWriter::Number(uint64_t number) {
  if (number <= INT64_MAX) return Number(static_cast<int64_t>(number));
  Part();
  Bytes("\x8a\x09");
  Little(number, 8);
  Little(0, 1);
}

void PickleWriter::Text(std::string_view text) {
  const auto known = texts_.find(std::string(text));
  if (known != texts_.end()) return Again(known->second);
  Part();
  const std::string safe = AsUtf8(text);
  out_->put('X');
  Little(safe.size(), 4);
  Bytes(safe);
  texts_.emplace(text, Remember());
}

uint32_t PickleWriter::Remember() {
  out_->put('r');
  Little(next_name_, 4);
  return next_name_++;
}

void PickleWriter::Again(uint32_t name) {
  Part();
  const bool is_short = name < 1 << 8;
  out_->put(is_short ? 'h' : 'j');
  Little(name, is_short ? 1 : 4);
}

}  // namespace commpool::internal::report
