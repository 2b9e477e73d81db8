// The history of our blocks, if the program asks for one with torch.cuda.memory._record_memory_history: who allocated
// them, and what happened when.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/torch/native.h"

namespace commpool::torch_adapter {

// Owns the records of live blocks and the trace of each device. The router and its deleters add to it; snapshots read
// it.
class History {
 public:
  using Context = std::shared_ptr<c10::GatheredContext>;
  using Entry = torch_names::TraceEntry;
  using RecordContext = torch_names::RecordContext;

  struct Request {
    bool enabled = false;
    torch_names::CreateContextFn recorder = nullptr;
    size_t entries = 0;  // the trace keeps the last ones
    RecordContext when = RecordContext::NEVER;
    std::vector<std::string> skipped;  // PyTorch's names of actions
  };
  void Record(const Request& request, bool clear);

  // While true, this thread's request to PyTorch to record history is only for our pools. The request fails where
  // PyTorch would start anew, so PyTorch's own history continues as before.
  static inline thread_local bool ours_only = false;

  static bool Wanted() { return wanted_.load(std::memory_order_relaxed); }
  // Says whether PyTorch records history of its own blocks while nobody records ours.
  static bool Misses() { return Native()->initialized() && Native()->isHistoryEnabled() && !Wanted(); }
  void Allocated(const commpool_block& block);
  void Freed(const commpool_block& block);
  void OutOfMemory(int device, uint64_t bytes, uint64_t device_free);
  void Annotated(const commpool_block& block, const std::string& metadata);

  // The compile context of this thread. PyTorch sets it while it records history.
  static void PushCompileContext(std::string context) { compile_contexts_.push_back(std::move(context)); }
  static void PopCompileContext() {
    if (!compile_contexts_.empty()) compile_contexts_.pop_back();
  }

  // Returns the context of the live block that starts here; null if nobody recorded it.
  Context ContextOf(const void* pointer);
  // Returns the entries ordered by PyTorch's clock, with the times converted to microseconds.
  std::vector<Entry> TraceOf(int device);

 private:
  static Entry MakeEntry(Entry::Action action, const commpool_block& block, uint64_t bytes, Context context);
  Context Gather(RecordContext level);
  void Append(const char* name, Entry entry);  // the caller holds the mutex

  static inline constinit std::atomic<bool> wanted_{false};  // for the one history; every allocation reads it
  static inline thread_local std::vector<std::string> compile_contexts_;
  std::mutex mutex_;
  Request request_;
  std::unordered_map<const void*, Context> contexts_;
  std::map<int, std::deque<Entry>> traces_;
};

History& TorchHistory();

// Records for our pools, and asks PyTorch to do so for its own. If a thread records only ours, PyTorch's call ends
// here: the program did not mean what PyTorch would do besides, such as to stop the record of pinned memory.
template <typename AskNative>
void RecordOurs(const History::Request& request, bool clear, const AskNative& ask_native) {
  if (!History::ours_only) ask_native();
  TorchHistory().Record(request, clear && !History::ours_only);
  TORCH_CHECK(!History::ours_only, "recorded for commpool's pools alone");
}

// Adds ours to the snapshot that PyTorch's own allocator made. That allocator knows none of our ids: for such an id it
// returns settings and traces, but no segment.
torch_names::SnapshotInfo WithOurs(torch_names::SnapshotInfo found, const c10::cuda::MempoolId_t& id,
                                   bool include_traces);

}  // namespace commpool::torch_adapter
