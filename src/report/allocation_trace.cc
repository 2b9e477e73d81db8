#include "src/report/allocation_trace.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "src/report/memory_book.h"

namespace commpool::internal::report {

namespace {

constexpr uint64_t kMostStreams = 1024;  // that the format knows

class TraceWriter final : public MemoryListener {
 public:
  explicit TraceWriter(std::ostream& out) : out_(&out) {}

  void Served(int64_t, Memory& block) override {
    const auto [stream, fresh] = streams_.try_emplace(block.stream, streams_.size());
    // A trace has no allocation of no bytes.
    *out_ << "a " << block.number << ' ' << std::max<uint64_t>(block.requested, 1) << ' '
          << std::min(stream->second, kMostStreams - 1) << '\n';
    ++counts_.allocations;
  }
  void Freed(int64_t, const Memory& block) override {
    *out_ << "f " << block.number << '\n';
    ++counts_.frees;
  }

  const TraceCounts& counts() const { return counts_; }

 private:
  std::ostream* out_;
  std::unordered_map<uint64_t, uint64_t> streams_;  // numbered by first use
  TraceCounts counts_;
};

}  // namespace

Result<TraceCounts> WriteAllocationTrace(std::ostream& out, const RecordingReader& recording) {
  out << "# a ID BYTES STREAM | f ID   (bytes as requested; streams numbered by first use)\n";
  Texts texts;
  TraceWriter writer(out);
  MemoryBook book(texts, writer);
  static_cast<void>(recording.Read(book));
  book.Finish();
  TraceCounts counts = writer.counts();
  counts.small = book.small_served();
  if (counts.small > 0) out << "# without " << counts.small << " allocations that threads' caches served\n";
  if (counts.allocations == 0) return Status(StatusCode::kNotFound, recording.path() + " has no block");
  return counts;
}

}  // namespace commpool::internal::report
