#include "src/library/recording/recording_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "src/library/base/fields.h"
#include "src/library/base/kept_file.h"
#include "src/library/base/keyed_hash.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"

namespace commpool::internal::recording {

namespace {

constexpr uint64_t kStart = 0xcbf29ce484222325;
constexpr uint64_t kPrime = 0x100000001b3;

uint64_t HashOn(uint64_t hash, const char* bytes, size_t count) {
  for (size_t done = 0; done < count; done += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + done, std::min(sizeof(word), count - done));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

uint32_t ChecksumOf(const PageHeader& header, std::string_view entries) {
  const uint64_t of_header = HashOn(kStart, reinterpret_cast<const char*>(&header), offsetof(PageHeader, checksum));
  const uint64_t hash = HashOn(of_header, entries.data(), entries.size());
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

RecordingFile::RecordingFile(std::string path, FileDescriptor file, uint64_t pages, uint64_t recording)
    : path_(std::move(path)), file_(std::move(file)), pages_(pages), recording_(recording) {}

Result<RecordingFile> RecordingFile::Make(const std::string& directory, ProcessFacts facts) {
  const std::string refused = "no recording can be made in \"" + Printable(directory, PATH_MAX) + "\"";
  const bool has_folder = mkdir(directory.c_str(), 0777) == 0 || errno == EEXIST;
  if (!has_folder) return SystemFailure(refused, errno, StatusCode::kInvalidArgument);
  const std::string name = directory + "/" + facts.host + "-" + std::to_string(facts.process);
  std::string path = name + ".recording";
  FileDescriptor descriptor;
  // A process may record several times, and another one may have had its number before.
  for (int time = 2;; path = name + "-" + std::to_string(time++) + ".recording") {
    descriptor = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor.valid() || errno != EEXIST) break;
  }
  if (!descriptor.valid()) return SystemFailure(refused, errno, StatusCode::kInvalidArgument);
  const uint64_t pages = std::max(facts.limit_bytes / kPageBytes, kFewestPages);
  facts.limit_bytes = pages * kPageBytes;
  // A number that no earlier recording of this file has.
  const uint64_t recording = RandomKey().value_or(HashKey{facts.steady_clock})[0];
  RecordingFile file(std::move(path), std::move(descriptor), pages, recording);
  std::array<char, 4096> bytes;
  FieldWriter writer(bytes.data(), bytes.size());
  writer.Write(facts);
  if (!writer.fits()) return InvalidArgument(refused, ": the program's name is too long");
  COMMPOOL_TRY(file.Write({.time = facts.steady_clock}, {bytes.data(), writer.used()}, 0));
  return file;
}

Status RecordingFile::Write(PageHeader header, std::string_view entries, size_t written) {
  header.recording = recording_;
  header.bytes = static_cast<uint32_t>(entries.size());
  header.checksum = ChecksumOf(header, entries);
  const uint64_t offset = OffsetOf(header.number, pages_);
  const std::string_view rest = entries.substr(written);
  int error = WriteAt(file_.get(), offset + sizeof(header) + written, rest.data(), rest.size());
  if (error == 0) error = WriteAt(file_.get(), offset, &header, sizeof(header));
  return error == 0 ? Status() : SystemFailure("pwrite of \"" + Printable(path_, PATH_MAX) + "\"", error);
}

}  // namespace commpool::internal::recording
