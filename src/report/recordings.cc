#include "src/report/recordings.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "src/library/base/try.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

constexpr std::string_view kEnding = ".recording";

Result<std::vector<std::string>> FilesIn(const std::string& place) {
  std::error_code error;
  if (!std::filesystem::exists(place, error)) return Status(StatusCode::kNotFound, "there is no \"" + place + "\"");
  if (!std::filesystem::is_directory(place, error)) return std::vector<std::string>{place};
  std::vector<std::string> files;
  auto entry = std::filesystem::directory_iterator(place, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string file = entry->path().string();
    if (file.ends_with(kEnding)) files.push_back(std::move(file));
  }
  if (error) return Status(StatusCode::kNotFound, "cannot read \"" + place + "\": " + error.message());
  if (files.empty()) {
    return Status(StatusCode::kNotFound,
                  "\"" + place + "\" has no recording: run the program with COMMPOOL_RECORD=" + place);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A process may record several times. Where the launcher gave it no rank, its number says whose recording it is.
bool IsOfOneRank(const recording::ProcessFacts& one, const recording::ProcessFacts& other) {
  if (one.rank != other.rank || one.rank >= 0) return one.rank == other.rank;
  return one.host == other.host && one.process == other.process;
}

// The newest recording of a rank stays: an older one is of a start before.
void KeepNewest(Recordings& recordings) {
  std::vector<RecordingReader> kept;
  for (RecordingReader& reader : recordings.readers) {
    const recording::ProcessFacts& facts = reader.facts();
    const auto older = std::ranges::find_if(kept, [&](const auto& one) { return IsOfOneRank(one.facts(), facts); });
    if (older == kept.end()) {
      kept.push_back(std::move(reader));
      continue;
    }
    const bool named = facts.rank >= 0;
    recordings.notes.push_back((named ? "rank " : "process ") +
                               std::to_string(named ? static_cast<uint64_t>(facts.rank) : facts.process) +
                               " left several recordings: \"" + older->path() + "\" is older and not shown");
    *older = std::move(reader);
  }
  recordings.readers = std::move(kept);
}

// A folder may still hold recordings of an earlier start of the program, with more ranks.
void KeepNewestStart(Recordings& recordings) {
  std::vector<RecordingReader>& readers = recordings.readers;
  const auto newest = std::max_element(readers.begin(), readers.end(), [](const auto& one, const auto& other) {
    return one.facts().wall_clock < other.facts().wall_clock;
  });
  const int64_t ranks = newest == readers.end() ? -1 : newest->facts().ranks;
  if (ranks <= 0) return;
  const auto earlier =
      std::erase_if(readers, [&](const RecordingReader& reader) { return reader.facts().ranks != ranks; });
  if (earlier == 0) return;
  recordings.notes.push_back(Counted(earlier, "recording") + " of a start with another number of ranks than " +
                             std::to_string(ranks) + ": not shown");
}

void NumberRanks(Recordings& recordings) {
  int64_t next = 0;
  uint64_t nameless = 0;
  for (const RecordingReader& reader : recordings.readers) next = std::max(next, reader.facts().rank + 1);
  for (const RecordingReader& reader : recordings.readers) {
    const bool named = reader.facts().rank >= 0;
    recordings.ranks.push_back(named ? reader.facts().rank : next++);
    nameless += named ? 0 : 1;
  }
  if (nameless == 0 || recordings.readers.size() == 1) return;
  recordings.notes.push_back("the launcher gave no rank to " + std::to_string(nameless) +
                             " of the processes: they are numbered in the order of their start");
}

void NoteMissing(Recordings& recordings) {
  int64_t world = 0;
  for (const RecordingReader& reader : recordings.readers) world = std::max(world, reader.facts().ranks);
  auto next = recordings.ranks.begin();
  for (int64_t rank = 0; rank < std::min<int64_t>(world, 1 << 20); ++rank) {
    while (next != recordings.ranks.end() && *next < rank) ++next;
    if (next == recordings.ranks.end() || *next != rank) recordings.missing.push_back(rank);
  }
  if (recordings.missing.empty()) return;
  recordings.notes.push_back(Counted(static_cast<uint64_t>(world), "rank") + ": " + RanksInWords(recordings.missing) +
                             " left no recording");
}

}  // namespace

Result<Recordings> OpenRecordings(const std::string& place) {
  Recordings recordings;
  Status refused;
  for (const std::string& file : COMMPOOL_TRY(FilesIn(place))) {
    Result<RecordingReader> reader = RecordingReader::Open(file);
    if (reader.ok()) {
      recordings.readers.push_back(std::move(*reader));
    } else {
      refused = reader.status();
      recordings.notes.push_back("not shown: " + refused.message());
    }
  }
  if (recordings.readers.empty()) return refused;
  std::stable_sort(recordings.readers.begin(), recordings.readers.end(),
                   [](const RecordingReader& a, const RecordingReader& b) {
                     const auto order = [](const recording::ProcessFacts& facts) {
                       // Those without a rank last.
                       return std::tuple(static_cast<uint64_t>(facts.rank), facts.wall_clock, facts.process);
                     };
                     return order(a.facts()) < order(b.facts());
                   });
  KeepNewest(recordings);
  KeepNewestStart(recordings);
  NumberRanks(recordings);
  NoteMissing(recordings);
  return recordings;
}

}  // namespace commpool::internal::report
