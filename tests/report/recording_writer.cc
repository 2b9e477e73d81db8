#include "tests/report/recording_writer.h"

#include <algorithm>

namespace commpool::internal::report {

using recording::PageHeader;

RecordingWriter::RecordingWriter(const std::string& directory, const recording::ProcessFacts& facts)
    : file_(recording::RecordingFile::Make(directory, facts).value()) {
  last_ = static_cast<int64_t>(facts.steady_clock);
}

uint64_t RecordingWriter::Text(int64_t time, const std::string& text) {
  if (text.empty()) return 0;
  BeginChapterIfFull(time);
  const auto [place, fresh] = texts_.try_emplace(text, texts_.size() + 1);
  if (!fresh) return place->second;
  text_of_[place->second] = text;
  Put(time, recording::Text{place->second, text});
  return place->second;
}

void RecordingWriter::Remember(int64_t, const recording::PoolGone& entry) {
  pools_.erase(entry.pool);
  const auto forget = [&](auto& living, uint64_t address) {
    const auto found = living.find(address);
    if (found != living.end() && found->second.entry.pool == entry.pool) living.erase(found);
  };
  for (const uint64_t address : addresses_[entry.pool]) {
    forget(segments_, address);
    forget(blocks_, address);
  }
  addresses_.erase(entry.pool);
}

template <typename Entry>
void RecordingWriter::Put(int64_t time, const Entry& entry) {
  if (header_.number == 0) BeginPage(time);
  for (int attempt = 0; attempt < 2; ++attempt) {
    FieldWriter writer(entries_.data() + used_, entries_.size() - used_);
    writer.Write(recording::kKindOf<Entry>);
    writer.Write(static_cast<uint64_t>(time - last_));
    writer.Write(entry);
    if (writer.fits()) {
      used_ += writer.used();
      break;
    }
    BeginPage(time);
  }
  last_ = time;
}

template <typename Entry>
void RecordingWriter::RetellAll(int64_t time, const std::map<uint64_t, Living<Entry>>& living) {
  for (const auto& [key, thing] : living) {
    Entry entry = thing.entry;
    entry.age = static_cast<uint64_t>(time - thing.since);
    Put(time, entry);
  }
}

void RecordingWriter::BeginChapterIfFull(int64_t time) {
  const bool full = header_.number - header_.chapter + 1 >= file_.pages_of_a_chapter() && used_ > entries_.size() / 2;
  if (in_chapter_ && !full) return;
  in_chapter_ = true;
  BeginPage(time);
  header_.chapter = header_.number;
  for (const auto& [number, text] : text_of_) Put(time, recording::Text{number, text});
  RetellAll(time, pools_);
  RetellAll(time, segments_);
  RetellAll(time, blocks_);
  RetellAll(time, spans_);
}

void RecordingWriter::BeginPage(int64_t time) {
  Flush();
  ++header_.number;
  if (header_.chapter == 0) header_.chapter = 1;
  header_.time = static_cast<uint64_t>(time);
  last_ = time;
  used_ = 0;
}

void RecordingWriter::LosePage() {
  if (!in_chapter_) BeginChapterIfFull(last_);
  BeginPage(last_);
  lose_ = true;
}

void RecordingWriter::Flush() {
  if (header_.number == 0 || std::exchange(lose_, false)) return;
  file_.Write(header_, {entries_.data(), used_}, 0).or_throw();
}

#define COMMPOOL_PUT(Entry) template void RecordingWriter::Put(int64_t, const recording::Entry&);
COMMPOOL_PUT(PoolMade)
COMMPOOL_PUT(PoolGone)
COMMPOOL_PUT(SegmentMade)
COMMPOOL_PUT(SegmentGone)
COMMPOOL_PUT(BlockServed)
COMMPOOL_PUT(BlockFreed)
COMMPOOL_PUT(PoolBytes)
COMMPOOL_PUT(SmallBlocks)
COMMPOOL_PUT(Registered)
COMMPOOL_PUT(Deregistered)
COMMPOOL_PUT(SpanBegan)
COMMPOOL_PUT(SpanEnded)
COMMPOOL_PUT(Call)
COMMPOOL_PUT(Lost)
#undef COMMPOOL_PUT

}  // namespace commpool::internal::report
