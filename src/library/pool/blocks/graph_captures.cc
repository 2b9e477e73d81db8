// GraphCaptures: each captured graph gets a user object of the driver. When the graph, and all that was instantiated
// from it, is gone, the driver's callback sets the capture's flag.
#include "src/library/pool/blocks/graph_captures.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

// The driver reports the end of a graph within microseconds, unless its thread gets no processor time.
constexpr std::chrono::milliseconds kMoment(500);
constexpr std::chrono::milliseconds kShortMoment(100);  // where a graph that stays alive is no error

using Flag = std::shared_ptr<std::atomic<bool>>;

// Runs on a thread of the driver, where no call of the driver is allowed. It owns the flag's pointer, because the pool
// may be gone by then.
void SetFlag(void* context) {
  const std::unique_ptr<Flag> flag(static_cast<Flag*>(context));
  (*flag)->store(true, std::memory_order_release);
}

}  // namespace

// Runs while the stream captures, so it makes only calls that a capture allows. After a failure nothing is known of the
// capture here.
Status GraphCaptures::Begin(CaptureHandle handle, const Origin& origin) {
  cuuint64_t number = 0;
  const CUgraph graph = COMMPOOL_TRY(GraphInCapture(basis_.driver, origin.stream, &number));
  if (graph == nullptr) {
    return FailedPrecondition("the stream is not being captured: announce a capture after cuStreamBeginCapture");
  }
  Capture capture;
  capture.origin = origin;
  capture.number = number;
  auto flag = std::make_unique<Flag>(capture.gone);
  UserObject object = COMMPOOL_TRY(UserObject::Create(basis_.driver, SetFlag, flag.get()));
  static_cast<void>(flag.release());  // the callback owns it now
  // From here on the graph owns the object, and what is instantiated from it too.
  COMMPOOL_TRY(object.MoveTo(graph));
  MutexLock lock(mutex_);
  // A part has the number of its first capture, so that one that was given back is never meant again.
  capture.part = handle;
  if (basis_.configuration.replays == Replays::kOneAtATime) {
    if (any_open()) {
      return FailedPrecondition(
          "another capture of the pool is open: graphs that share memory (option replays) are captured one at a time");
    }
    if (!captures_.empty()) capture.part = captures_.begin()->second.part;
  }
  captures_.emplace(handle, std::move(capture));
  known_.store(captures_.size(), std::memory_order_release);
  // Last: who sees an open capture also finds it in the table.
  open_.fetch_add(1, std::memory_order_release);
  return Status();
}

// The entry stays: its graph may live on.
GraphCaptures::Origin GraphCaptures::End(CaptureHandle handle) {
  MutexLock lock(mutex_);
  Capture& capture = captures_.at(handle);
  capture.ended = true;
  open_.fetch_sub(1, std::memory_order_release);
  return std::move(capture.origin);
}

engine::Part GraphCaptures::PartOfCapture(CaptureHandle capture) const {
  MutexLock lock(mutex_);
  return captures_.at(capture).part;
}

void GraphCaptures::NoteKey(CUstream stream, StreamKey key) {
  MutexLock lock(mutex_);
  for (auto& [handle, capture] : captures_) {
    if (!capture.ended && capture.origin.stream == stream) capture.origin.key = key;
  }
}

void GraphCaptures::ForgetStream(StreamKey stream) {
  MutexLock lock(mutex_);
  for (auto& [handle, capture] : captures_) {
    if (capture.origin.key == stream) capture.origin_released = true;
  }
}

bool GraphCaptures::IsRunning(engine::Part part) {
  StreamKey origin = 0;
  {
    MutexLock lock(mutex_);
    const Capture* const capture = FindOpen(part);
    if (capture == nullptr || capture->origin_released) return false;
    origin = capture->origin.key;
  }
  // Of a thread's own stream only that thread can ask. A use that ended in the graph costs a later wait, at most.
  if (IsPerThread(origin) && !IsReachable(origin)) return false;
  return MayHaveDied(origin) || IsJoinedBy(part, origin);
}

bool GraphCaptures::IsJoinedBy(engine::Part part, StreamKey stream) {
  const Result<engine::Part> joined = PartOf(stream);
  return joined.ok() && *joined == part;
}

void GraphCaptures::NoteFree(engine::Part part, engine::Moment moment) {
  MutexLock lock(mutex_);
  if (Capture* const capture = FindOpen(part)) capture->done.last_free = std::max(capture->done.last_free, moment);
}

GraphCaptures::Done GraphCaptures::DoneBy(engine::Part part) {
  MutexLock lock(mutex_);
  const Capture* const capture = FindOpen(part);
  return capture == nullptr ? Done() : capture->done;
}

// Graphs that share a part are captured one at a time, so there is one at most.
GraphCaptures::Capture* GraphCaptures::FindOpen(engine::Part part) {
  for (auto& [handle, capture] : captures_) {
    if (capture.part == part && !capture.ended) return &capture;
  }
  return nullptr;
}

// Without an open capture in the process it makes no driver call. A stream may belong to a capture by a join, so the
// driver is asked for the stream's graph, and the graph is compared.
Result<engine::Part> GraphCaptures::PartOf(StreamKey stream) {
  // Captures of other pools count too: the stream may belong to one of them, which is an error here.
  if (!basis_.device->captures().any() || !IsReachable(stream) || IsLegacy(stream)) return engine::kCommonPart;
  const ContextGuard current = basis_.MakeCurrent(stream);
  cuuint64_t number = 0;
  const CUgraph graph = COMMPOOL_TRY(basis_.Named(GraphInCapture(basis_.driver, StreamOfKey(stream), &number)));
  if (graph == nullptr) return engine::kCommonPart;
  MutexLock lock(mutex_);
  for (auto& [handle, capture] : captures_) {
    if (capture.ended || capture.number != number) continue;
    if (IsUnpromised(stream)) capture.done.joined.insert(stream);
    return capture.part;
  }
  return basis_.Named(
      FailedPrecondition("the stream is in a capture that this pool was not told of: begin a CaptureScope"));
}

// Looks at flags only, so it waits under no lock and calls no driver.
size_t GraphCaptures::AwaitNoneLive(std::chrono::milliseconds moment) const {
  const auto limit = std::chrono::steady_clock::now() + moment;
  for (;;) {
    size_t live = 0;
    {
      MutexLock lock(mutex_);
      for (const auto& [handle, capture] : captures_) live += capture.IsGone() ? 0 : 1;
    }
    if (live == 0 || std::chrono::steady_clock::now() >= limit) return live;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the driver has a callback and nothing to wait for
  }
}

// While a capture is open its graph lives on in any case, so a wait would be for nothing.
size_t GraphCaptures::AwaitEndedGraphs() const { return any_open() ? 0 : AwaitNoneLive(kShortMoment); }

// A capture that is open counts as alive.
Status GraphCaptures::CheckNoneLive() const {
  const size_t live = AwaitNoneLive(kMoment);
  if (live == 0) return Status();
  return FailedPrecondition(Counted(live, "graph"), " that captured with the pool may still be replayed: ",
                            "destroy them, and what was instantiated from them, first");
}

// MemorySearch asks it of destroyed pools, before it makes one release its memory.
bool GraphCaptures::any_gone() const {
  MutexLock lock(mutex_);
  return std::any_of(captures_.begin(), captures_.end(), [](const auto& entry) { return entry.second.IsGone(); });
}

// Each part is returned once, so the caller must deal with its memory now.
std::vector<engine::Part> GraphCaptures::TakeGone() {
  if (!any_known()) return {};
  MutexLock lock(mutex_);
  std::set<engine::Part> gone;
  for (auto entry = captures_.begin(); entry != captures_.end();) {
    const bool is_gone = entry->second.IsGone();
    if (is_gone) gone.insert(entry->second.part);
    entry = is_gone ? captures_.erase(entry) : std::next(entry);
  }
  for (const auto& [handle, capture] : captures_) gone.erase(capture.part);
  known_.store(captures_.size(), std::memory_order_release);
  return {gone.begin(), gone.end()};
}

}  // namespace commpool::internal
