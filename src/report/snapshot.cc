#include "src/report/snapshot.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

#include "src/report/memory_book.h"
#include "src/report/pickle_writer.h"

namespace commpool::internal::report {

namespace {

constexpr int64_t kMostDevices = 64;  // a snapshot has a list for each up to the last

int64_t PlaceOf(int64_t device) { return std::clamp<int64_t>(device, 0, kMostDevices - 1); }

// By its key: the default stream has key 1 (src/library/stream/stream_key.h), and is 0 in PyTorch.
uint64_t StreamOf(uint64_t key) { return key == 1 ? 0 : key; }

// Which devices there are.
struct DeviceCount {
  int64_t devices = 1;
  void BeginChapter(int64_t, Before) {}
  void Take(int64_t, const recording::PoolMade& entry) { devices = std::max(devices, PlaceOf(entry.device) + 1); }
};

class Frames {
 public:
  Frames(PickleWriter& pickle, const Texts& texts) : pickle_(&pickle), texts_(&texts) {}

  // The frames of a stack are written once.
  void Write(uint32_t stack) {
    const auto known = names_.find(stack);
    if (known != names_.end()) return pickle_->Again(known->second);
    std::string_view rest = (*texts_)[stack];
    pickle_->BeginList();
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      if (end > 0) WriteFrame(ParseFrame(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    pickle_->EndList();
    names_[stack] = pickle_->Remember();
  }

 private:
  void WriteFrame(const StackFrame& frame) {
    pickle_->BeginDict();
    pickle_->Text("name");
    pickle_->Text(frame.name);
    pickle_->Text("filename");
    pickle_->Text(frame.file);
    pickle_->Text("line");
    pickle_->Number(frame.line);
    pickle_->EndDict();
  }

  PickleWriter* pickle_;
  const Texts* texts_;
  std::unordered_map<uint32_t, uint32_t> names_;
};

// The events of one device.
class DeviceTrace final : public MemoryListener {
 public:
  DeviceTrace(PickleWriter& pickle, Frames& frames, int64_t device)
      : pickle_(&pickle), frames_(&frames), device_(device) {}

  void Served(int64_t time, Memory& block) override { Write("alloc", time, block); }
  void Freed(int64_t time, const Memory& block) override {
    Write("free_requested", time, block);
    Write("free_completed", time, block);
  }
  void SegmentMade(int64_t time, Memory& segment) override {
    Write(segment.kind == SegmentKind::kPages ? "segment_map" : "segment_alloc", time, segment);
  }
  void SegmentGone(int64_t time, const Memory&, const Memory& gone) override {
    Write(gone.kind == SegmentKind::kPages ? "segment_unmap" : "segment_free", time, gone);
  }

 private:
  void Write(std::string_view action, int64_t time, const Memory& memory) {
    if (PlaceOf(memory.device) != device_) return;
    pickle_->BeginDict();
    pickle_->Text("action");
    pickle_->Text(action);
    pickle_->Text("addr");
    pickle_->Number(memory.address);
    pickle_->Text("size");
    pickle_->Number(memory.bytes);
    pickle_->Text("stream");
    pickle_->Number(StreamOf(memory.stream));
    pickle_->Text("time_us");
    pickle_->Number(time / 1000);
    pickle_->Text("frames");
    frames_->Write(memory.stack);
    pickle_->EndDict();
  }

  PickleWriter* pickle_;
  Frames* frames_;
  int64_t device_;
};

// Ranges of pages that touch are one segment: a block may lie across them. Whole ones are not: memory_viz looks for
// each of them by the address that its event has.
std::vector<Memory> JoinedSegments(const MemoryBook::Memories& segments) {
  std::vector<Memory> joined;
  for (const auto& [address, segment] : segments) {
    const bool touches = segment.kind == SegmentKind::kPages && !joined.empty() && joined.back().pool == segment.pool &&
                         joined.back().address + joined.back().bytes == address;
    if (touches) {
      joined.back().bytes += segment.bytes;
    } else {
      joined.push_back(segment);
    }
  }
  return joined;
}

class Segments {
 public:
  Segments(PickleWriter& pickle, Frames& frames, const MemoryBook::Memories& blocks)
      : pickle_(&pickle), frames_(&frames), blocks_(&blocks) {}

  void Write(const Memory& segment) {
    const uint64_t end = segment.address + segment.bytes;
    const auto first = blocks_->lower_bound(segment.address);
    uint64_t allocated = 0;
    uint64_t requested = 0;
    for (auto block = first; block != blocks_->end() && block->first < end; ++block) {
      allocated += block->second.bytes;
      requested += block->second.requested;
    }
    pickle_->BeginDict();
    Field("device", PlaceOf(segment.device));
    Field("address", segment.address);
    Field("total_size", segment.bytes);
    Field("allocated_size", allocated);
    Field("active_size", allocated);
    Field("requested_size", requested);
    // A segment serves all streams. memory_viz joins ranges of pages that have one stream, so it is that of the events.
    Field("stream", segment.stream);
    pickle_->Text("segment_type");
    pickle_->Text("large");
    pickle_->Text("segment_pool_id");
    pickle_->BeginList();
    pickle_->Number(int64_t{0});
    pickle_->Number(segment.pool);
    pickle_->EndList();
    pickle_->Text("is_expandable");
    segment.kind == SegmentKind::kPages ? pickle_->True() : pickle_->False();
    pickle_->Text("frames");
    frames_->Write(kNoText);
    pickle_->Text("blocks");
    pickle_->BeginList();
    WriteBlocks(segment.address, end);
    pickle_->EndList();
    pickle_->EndDict();
  }

 private:
  template <typename Value>
  void Field(std::string_view name, Value value) {
    pickle_->Text(name);
    pickle_->Number(value);
  }

  // Blocks and the free memory between them.
  void WriteBlocks(uint64_t begin, uint64_t end) {
    for (auto block = blocks_->lower_bound(begin); block != blocks_->end() && block->first < end; ++block) {
      if (block->first < begin) continue;  // lies under the one before: its end is missing
      const uint64_t bytes = std::min(block->second.bytes, end - block->first);
      if (block->first > begin) WriteBlock(begin, block->first - begin, 0, "inactive", kNoText);
      WriteBlock(block->first, bytes, block->second.requested, "active_allocated", block->second.stack);
      begin = block->first + bytes;
    }
    if (begin < end) WriteBlock(begin, end - begin, 0, "inactive", kNoText);
  }

  void WriteBlock(uint64_t address, uint64_t bytes, uint64_t requested, std::string_view state, uint32_t stack) {
    pickle_->BeginDict();
    Field("address", address);
    Field("size", bytes);
    Field("requested_size", requested);
    pickle_->Text("state");
    pickle_->Text(state);
    pickle_->Text("frames");
    frames_->Write(stack);
    pickle_->EndDict();
  }

  PickleWriter* pickle_;
  Frames* frames_;
  const MemoryBook::Memories* blocks_;
};

}  // namespace

StackFrame ParseFrame(std::string_view line) {
  for (size_t colon = line.find(':'); colon != std::string_view::npos; colon = line.find(':', colon + 1)) {
    StackFrame frame;
    const char* const digits = line.data() + colon + 1;
    const char* const last = line.data() + line.size();
    const auto [end, error] = std::from_chars(digits, last, frame.line);
    if (error != std::errc() || frame.line < 0 || (end != last && *end != ' ')) continue;
    frame.file = line.substr(0, colon);
    frame.name = end == last ? "" : std::string(end + 1, last);
    return frame;
  }
  return {.name = std::string(line), .file = ""};
}

void WriteSnapshot(std::ostream& out, const RecordingReader& recording) {
  DeviceCount count;
  static_cast<void>(recording.Read(count));
  Texts texts;
  PickleWriter pickle(out);
  Frames frames(pickle, texts);
  pickle.BeginDict();
  pickle.Text("device_traces");
  pickle.BeginList();
  for (int64_t device = 0; device < count.devices; ++device) {
    pickle.BeginList();
    DeviceTrace trace(pickle, frames, device);
    MemoryBook book(texts, trace);
    static_cast<void>(recording.Read(book));
    book.Finish();
    pickle.EndList();
  }
  pickle.EndList();
  pickle.Text("segments");
  pickle.BeginList();
  MemoryListener nothing;
  MemoryBook end(texts, nothing);
  static_cast<void>(recording.Read(end));
  end.Finish();
  Segments segments(pickle, frames, end.blocks());
  for (const Memory& segment : JoinedSegments(end.segments())) segments.Write(segment);
  pickle.EndList();
  pickle.Text("allocator_settings");
  pickle.BeginDict();
  pickle.EndDict();
  pickle.Text("external_annotations");
  pickle.BeginList();
  pickle.EndList();
  pickle.EndDict();
  pickle.Finish();
}

}  // namespace commpool::internal::report
