// The recordings of a folder: one a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/report/recording_reader.h"

namespace commpool::internal::report {

struct Recordings {
  std::vector<RecordingReader> readers;  // by rank
  std::vector<int64_t> ranks;            // theirs; numbered on where the launcher says nothing
  std::vector<int64_t> missing;          // ranks of the program that left none
  std::vector<std::string> notes;
};

// Opens HOST-PROCESS.recording of a folder, or the one file that is named. Files that cannot be read are notes;
// kNotFound where there is none, otherwise the last one's error where none can be read.
Result<Recordings> OpenRecordings(const std::string& place);

}  // namespace commpool::internal::report
