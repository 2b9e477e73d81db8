#include "tools/traces/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/traces/xz.h"

namespace commpool::cli {

namespace {

constexpr std::string_view kPlain = ".trace";
constexpr std::string_view kCompressed = ".trace.xz";

bool IsTrace(const std::string& file) { return file.ends_with(kPlain) || file.ends_with(kCompressed); }

// The numbers of one line; nothing where the line has anything else.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  std::optional<uint64_t> Number() {
    const size_t begin = rest_.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    rest_.remove_prefix(begin);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  bool AtEnd() const { return rest_.find_first_not_of(" \r") == std::string_view::npos; }

 private:
  std::string_view rest_;
};

class Parser {
 public:
  explicit Parser(std::string name) { trace_.name = std::move(name); }

  // Reads a line. Returns what is wrong with it, or an empty text.
  std::string Read(std::string_view text) {
    if (text.empty() || text.front() == '#') return "";
    Line line(text.substr(1));
    const std::optional<uint64_t> id = line.Number();
    if (!id) return "has no number of a block";
    if (text.front() == 'f') return line.AtEnd() ? Free(*id) : "has more than `f ID`";
    if (text.front() != 'a') return "begins with neither a nor f";
    const std::optional<uint64_t> bytes = line.Number();
    const std::optional<uint64_t> stream = line.Number();
    if (!bytes || !stream || !line.AtEnd()) return "is not `a ID BYTES STREAM`";
    if (*bytes == 0 || *stream >= 1024) return "needs at least one byte and a stream below 1024";
    return Allocate(*id, *bytes, static_cast<uint32_t>(*stream));
  }

  Trace Take() && { return std::move(trace_); }

 private:
  std::string Allocate(uint64_t id, uint64_t bytes, uint32_t stream) {
    const auto [place, fresh] = live_.try_emplace(id, Live{trace_.blocks, stream, bytes});
    if (!fresh) return "allocates a block that lives";
    const std::optional<uint64_t> sum = internal::CheckedAdd(requested_, bytes);
    if (!sum) return "asks for more bytes than there are addresses";
    requested_ = *sum;
    trace_.peak_requested_bytes = std::max(trace_.peak_requested_bytes, requested_);
    trace_.streams = std::max(trace_.streams, stream + 1);
    trace_.events.push_back({.block = trace_.blocks++, .stream = stream, .bytes = bytes});
    return "";
  }

  std::string Free(uint64_t id) {
    const auto found = live_.find(id);
    if (found == live_.end()) return "frees a block that does not live";
    requested_ -= found->second.bytes;
    trace_.events.push_back({.block = found->second.block, .stream = found->second.stream});
    live_.erase(found);
    return "";
  }

  struct Live {
    uint32_t block;
    uint32_t stream;
    uint64_t bytes;
  };

  Trace trace_;
  std::unordered_map<uint64_t, Live> live_;
  uint64_t requested_ = 0;
};

Result<std::string> ReadText(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return Status(StatusCode::kNotFound, "cannot read " + file);
  if (!file.ends_with(kCompressed)) return content.str();
  return DecompressXz(file, content.str());
}

std::optional<double> UtilisationIn(const std::string& file) {
  std::ifstream stream(file);
  const nlohmann::json measures = nlohmann::json::parse(stream, nullptr, false);
  if (!measures.is_object()) return std::nullopt;
  const double requested = measures.value("peak_requested", 0.0);
  const double reserved = measures.value("peak_reserved", 0.0);
  return reserved > 0 ? std::optional(requested / reserved) : std::nullopt;
}

}  // namespace

Result<Trace> ParseTrace(const std::string& name, const std::string& text) {
  Parser parser(name);
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    const std::string wrong = parser.Read(std::string_view(text).substr(begin, end - begin));
    if (!wrong.empty()) {
      return Status(StatusCode::kInvalidArgument, "line " + std::to_string(number) + " of " + name + " " + wrong);
    }
    begin = end + 1;
  }
  Trace trace = std::move(parser).Take();
  if (trace.events.empty()) return Status(StatusCode::kInvalidArgument, name + " holds no event");
  return trace;
}

Result<Trace> ReadTrace(const std::string& file) {
  std::string text = COMMPOOL_TRY(ReadText(file));
  const std::filesystem::path path(file);
  const std::string name = path.filename().string().substr(0, path.filename().string().rfind(kPlain));
  Result<Trace> trace = ParseTrace(name, text);
  if (!trace.ok()) return trace;
  const std::string beside = (path.parent_path() / name).string();
  trace->pytorch_native = UtilisationIn(beside + ".native.json");
  trace->pytorch_expandable = UtilisationIn(beside + ".expandable.json");
  return trace;
}

Result<std::vector<std::string>> FindTraces(const std::vector<std::string>& places) {
  std::vector<std::string> files;
  for (const std::string& place : places) {
    std::error_code error;
    if (!std::filesystem::is_directory(place, error)) {
      if (!std::filesystem::exists(place, error)) return Status(StatusCode::kNotFound, "there is no " + place);
      files.push_back(place);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
      if (IsTrace(entry.path().string())) inside.push_back(entry.path().string());
    }
    if (inside.empty()) return Status(StatusCode::kNotFound, "there is no trace in " + place);
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

void SpreadOverStreams(Trace& trace, uint32_t streams) {
  constexpr uint32_t kRun = 64;
  constexpr uint32_t kSharedEvery = 8;
  std::vector<uint32_t> stream_of(trace.blocks, 0);
  for (TraceEvent& event : trace.events) {
    if (event.allocates()) {
      stream_of[event.block] = event.block / kRun % streams;
      // Each stream writes one half of a block that two streams use.
      const bool shared = streams > 1 && event.block % kSharedEvery == 0 && event.bytes >= 2;
      event.also_on = shared ? (stream_of[event.block] + 1) % streams : TraceEvent::kNoStream;
    }
    event.stream = stream_of[event.block];
  }
  trace.streams = streams;
}

void Scale(Trace& trace, double factor) {
  std::vector<uint64_t> bytes_of(trace.blocks, 0);
  uint64_t requested = 0;
  trace.peak_requested_bytes = 0;
  for (TraceEvent& event : trace.events) {
    uint64_t& bytes = bytes_of[event.block];
    if (!event.allocates()) {
      requested -= bytes;
      continue;
    }
    event.bytes = std::max<uint64_t>(std::llround(static_cast<double>(event.bytes) * factor), 1);
    bytes = event.bytes;
    requested += bytes;
    trace.peak_requested_bytes = std::max(trace.peak_requested_bytes, requested);
  }
}

}  // namespace commpool::cli
