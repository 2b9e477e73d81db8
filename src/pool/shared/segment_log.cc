// Segments in the log.
#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/engine/messages.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

namespace {

class SegmentLog final : public MemoryObserver {
 public:
  void SegmentAdded(const engine::SegmentRange& segment, const std::string& pool) override {
    Write(segment, pool, "makes");
  }
  void SegmentRemoved(const engine::SegmentRange& segment, const std::string& pool) override {
    Write(segment, pool, "gives back");
  }

 private:
  static void Write(const engine::SegmentRange& segment, const std::string& pool, const char* verb) {
    Log(LogLevel::kDebug, "pool " + pool + " " + verb + " a segment of " + FormatBytes(segment.bytes) + " at " +
                              engine::Hexadecimal(segment.address));
  }
};

}  // namespace

std::unique_ptr<MemoryObserver> MakeSegmentLog() {
  return LogEnabled(LogLevel::kDebug) ? std::make_unique<SegmentLog>() : nullptr;
}

}  // namespace commpool::internal
