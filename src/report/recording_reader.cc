#include "src/report/recording_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

using recording::kPageBytes;
using recording::PageHeader;

Status Wrong(const std::string& path, const std::string& reason) {
  return Status(StatusCode::kInvalidArgument, "\"" + path + "\" " + reason);
}

PageHeader HeaderOf(std::string_view page) {
  PageHeader header{.magic = 0};
  if (page.size() >= sizeof(header)) std::memcpy(&header, page.data(), sizeof(header));
  return header;
}

bool IsWhole(const PageHeader& header, std::string_view page) {
  return header.magic == recording::kMagic && header.bytes <= page.size() - sizeof(header) &&
         header.checksum == recording::ChecksumOf(header, page.substr(sizeof(header), header.bytes));
}

// Of a place in the file that nothing was written to.
bool IsEmpty(std::string_view page) { return page.find_first_not_of('\0') == std::string_view::npos; }

// Does not wait for a pipe's writer.
Result<FileDescriptor> OpenFile(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts = {};
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return Status(CodeOfError(errno, StatusCode::kNotFound),
                  "cannot read \"" + path + "\": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  }
  if (!S_ISREG(facts.st_mode)) return Wrong(path, "is no file");
  return file;
}

}  // namespace

std::string_view RecordingReader::Load(const FileDescriptor& file, uint64_t offset, std::string& buffer) {
  buffer.resize(kPageBytes);
  size_t count = 0;
  while (count < kPageBytes) {
    const ssize_t got =
        pread(file.get(), buffer.data() + count, kPageBytes - count, static_cast<off_t>(offset + count));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    count += static_cast<size_t>(got);
  }
  return std::string_view(buffer).substr(0, count);
}

Status RecordingReader::ReadFacts(const FileDescriptor& file) {
  std::string buffer;
  const std::string_view page = Load(file, 0, buffer);
  const PageHeader header = HeaderOf(page);
  if (page.empty()) return Wrong(path_, "is empty");
  if (header.magic != recording::kMagic) return Wrong(path_, "is no recording of commpool");
  if (header.version != recording::kVersion) {
    return Wrong(path_, "is a recording of version " + std::to_string(header.version) + ", and this program reads " +
                            std::to_string(recording::kVersion) + ": use the commpool that wrote it");
  }
  if (!IsWhole(header, page) || header.number != 0) return Wrong(path_, "is damaged: its first page is not whole");
  FieldReader reader(page.substr(sizeof(header), header.bytes));
  reader.Read(facts_);
  constexpr int64_t kMostRanks = int64_t{1} << 31;
  constexpr uint64_t kLastMoment = uint64_t{1} << 62;  // ns: the year 2116
  const auto is_rank = [](int64_t number) { return number >= -1 && number < kMostRanks; };
  const bool sound = reader.ok() && is_rank(facts_.rank) && is_rank(facts_.ranks) && facts_.wall_clock < kLastMoment &&
                     facts_.steady_clock < kLastMoment;
  if (!sound || facts_.limit_bytes / kPageBytes < 2) {
    return Wrong(path_, "is damaged: its first page does not say whose it is");
  }
  recording_ = header.recording;
  return Status();
}

void RecordingReader::FindPages(const FileDescriptor& file) {
  const uint64_t pages = facts_.limit_bytes / kPageBytes;
  std::string buffer;
  uint64_t damaged = 0;
  for (uint64_t position = 1; position < pages; ++position) {
    const uint64_t offset = position * kPageBytes;
    const std::string_view page = Load(file, offset, buffer);
    if (page.empty()) break;
    const PageHeader header = HeaderOf(page);
    const bool placed = header.number != 0 && header.chapter <= header.number && header.chapter != 0 &&
                        recording::OffsetOf(header.number, pages) == offset;
    if (page.size() >= sizeof(header) && IsWhole(header, page) && header.version == recording::kVersion && placed) {
      if (header.recording == recording_) pages_.push_back({header, offset});
    } else if (!IsEmpty(page)) {
      ++damaged;
    }
  }
  std::sort(pages_.begin(), pages_.end(),
            [](const Place& a, const Place& b) { return a.header.number < b.header.number; });
  NoteWhatIsMissing(damaged);
}

void RecordingReader::NoteWhatIsMissing(uint64_t damaged) {
  begin_ = TimeOf(facts_.steady_clock);
  const auto first = std::find_if(pages_.begin(), pages_.end(),
                                  [](const Place& page) { return page.header.number == page.header.chapter; });
  const uint64_t beyond = pages_.empty() ? 0 : pages_.back().header.number;
  if (damaged > 0) notes_.push_back(Counted(damaged, "page") + " of the recording " + Are(damaged) + " damaged");
  if (first == pages_.end()) {
    notes_.push_back(pages_.empty() ? "the recording has no entries" : "no chapter of the recording is whole");
    pages_.clear();
    return;
  }
  pages_.erase(pages_.begin(), first);
  const uint64_t number = pages_.front().header.number;
  uint64_t missing = 0;
  for (size_t page = 1; page < pages_.size(); ++page) {
    missing += pages_[page].header.number - pages_[page - 1].header.number - 1;
  }
  if (missing > 0) notes_.push_back(Counted(missing, "page") + " of the recording " + Are(missing) + " missing");
  if (number == 1) return;
  begin_ = std::max(begin_, TimeOf(pages_.front().header.time));
  const std::string gone = "the oldest " + InWords(begin_ - TimeOf(facts_.steady_clock)) + " are gone: ";
  const bool was_full = beyond >= facts_.limit_bytes / kPageBytes;
  notes_.push_back(gone + (was_full ? "the recording reached its limit of " + FormatBytes(facts_.limit_bytes)
                                    : "its first pages are missing"));
}

uint64_t RecordingReader::ReadPages(TakePage take) const {
  const Result<FileDescriptor> file = OpenFile(path_);
  if (!file.ok()) return pages_.size();
  std::string buffer;
  uint64_t expected = pages_.empty() ? 0 : pages_.front().header.number;
  bool in_order = false;
  Before before = Before::kWhole;
  for (const Place& place : pages_) {
    const uint64_t number = place.header.number;
    if (in_order && number != expected) {
      in_order = false;
      before = Before::kGap;
    }
    expected = number + 1;
    if (!in_order && number != place.header.chapter) continue;
    const std::string_view page = Load(*file, place.offset, buffer);
    // Its process may go on with writing.
    if (page.size() < sizeof(PageHeader) || std::memcmp(page.data(), &place.header, sizeof(PageHeader)) != 0 ||
        !IsWhole(place.header, page)) {
      in_order = false;
      before = Before::kGap;
      continue;
    }
    in_order = take(place.header, page.substr(sizeof(PageHeader), place.header.bytes), before);
    before = in_order ? Before::kWhole : Before::kGap;
  }
  return 0;
}

Result<RecordingReader> RecordingReader::Open(const std::string& path) {
  const FileDescriptor file = COMMPOOL_TRY(OpenFile(path));
  RecordingReader reader(path);
  COMMPOOL_TRY(reader.ReadFacts(file));
  reader.FindPages(file);
  return reader;
}

}  // namespace commpool::internal::report
