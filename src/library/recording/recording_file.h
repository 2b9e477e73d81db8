// RecordingFile: one process's recording on the disk, which never grows past its limit. Recorder owns one, and one
// thread at a time uses it.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_RECORDING_FILE_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_RECORDING_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/page.h"

namespace commpool::internal::recording {

class RecordingFile {
 public:
  // Makes a file in the directory, which it makes too where it is missing (not its parents). `facts.limit_bytes` is
  // rounded down to pages, at least kFewestPages. kInvalidArgument where the path is no directory, kOutOfMemory where
  // the disk has no room for the first page.
  static constexpr uint64_t kFewestPages = 16;
  static Result<RecordingFile> Make(const std::string& directory, ProcessFacts facts);

  const std::string& path() const { return path_; }
  // A chapter is at most so many pages, so that the ring always holds some whole ones.
  uint64_t pages_of_a_chapter() const { return (pages_ - 1) / 8; }

  // Writes what is new of a page: entries from `written` on, and then the header, whose checksum it sets.
  Status Write(PageHeader header, std::string_view entries, size_t written);

 private:
  RecordingFile(std::string path, FileDescriptor file, uint64_t pages, uint64_t recording);

  std::string path_;
  FileDescriptor file_;
  uint64_t pages_;
  uint64_t recording_;
};

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_RECORDING_FILE_H_
