// What a recording holds, entry by entry, read without the report's reader.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/library/base/fields.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recording_file.h"

namespace commpool::internal::recording::testing {

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "/recording-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  // The one file in it.
  std::string File() const {
    const std::filesystem::directory_iterator files(path_);
    return begin(files) == end(files) ? std::string() : begin(files)->path().string();
  }

 private:
  std::string path_;
};

struct Recorded {
  uint64_t page = 0;
  uint64_t chapter = 0;
  uint64_t time = 0;
  Event entry;
};

struct Recording {
  ProcessFacts facts;
  std::vector<Recorded> entries;  // by page
  std::map<uint64_t, std::string> texts;
  uint64_t damaged_pages = 0;

  // All entries of a kind, the retold ones too; or those of one chapter.
  template <typename Entry>
  std::vector<Entry> All(std::optional<uint64_t> chapter = {}) const {
    std::vector<Entry> all;
    for (const Recorded& one : entries) {
      const auto* entry = std::get_if<Entry>(&one.entry);
      if (entry != nullptr && one.chapter == chapter.value_or(one.chapter)) all.push_back(*entry);
    }
    return all;
  }
};

namespace internal {

template <typename Entry>
bool ReadAs(uint8_t kind, FieldReader& reader, Event& entry) {
  if (kind != kKindOf<Entry>) return false;
  reader.Read(entry.emplace<Entry>());
  return true;
}

inline void ReadEntries(const PageHeader& header, std::string_view bytes, Recording& recording) {
  FieldReader reader(bytes);
  for (uint64_t time = header.time; !reader.at_end();) {
    uint8_t kind = 0;
    uint64_t later = 0;
    reader.Read(kind);
    reader.Read(later);
    time += later;
    Recorded one{header.number, header.chapter, time, {}};
    const auto any = [&]<typename... Entries>(std::variant<Entries...>*) {
      return (ReadAs<Entries>(kind, reader, one.entry) || ...);
    };
    ASSERT_TRUE(any(static_cast<Event*>(nullptr)) && reader.ok())
        << "kind " << static_cast<int>(kind) << " of page " << header.number;
    if (const auto* text = std::get_if<Text>(&one.entry)) recording.texts[text->number] = text->text;
    recording.entries.push_back(one);
  }
}

}  // namespace internal

inline Recording ReadRecording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Recording recording;
  std::map<uint64_t, std::pair<PageHeader, std::string_view>> pages;
  for (uint64_t offset = 0; offset + sizeof(PageHeader) <= all.size(); offset += kPageBytes) {
    PageHeader header;
    std::memcpy(&header, all.data() + offset, sizeof(header));
    const std::string_view entries = std::string_view(all).substr(offset + sizeof(header), header.bytes);
    const bool whole = header.bytes <= kEntryRoom && header.checksum == ChecksumOf(header, entries);
    if (whole) {
      pages[header.number] = {header, entries};
    } else {
      ++recording.damaged_pages;
    }
  }
  for (const auto& [number, page] : pages) {
    if (number != 0) {
      internal::ReadEntries(page.first, page.second, recording);
      continue;
    }
    FieldReader reader(page.second);
    reader.Read(recording.facts);
    EXPECT_TRUE(reader.ok() && reader.at_end());
  }
  return recording;
}

}  // namespace commpool::internal::recording::testing
