// Whether, and where, the ranks of a symmetric pool made different calls. Ranks are at different places of one
// sequence. So rank 0 compares only calls that both it and the other rank have published.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/field_list.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/sequence_log.h"
#include "src/library/registration/agreement_channel.h"

namespace commpool::internal {

using Calls = std::vector<engine::SequenceEntry>;

// A rank's calls, ascending: the message that it publishes.
struct PublishedCalls {
  static constexpr const char* kName = "list of calls";
  Calls calls = {};
  using Fields = FieldList<&PublishedCalls::calls>;
};

// The message of rank 0 to the others.
struct PublishedDifference {
  static constexpr const char* kName = "difference";
  std::string difference = {};
  using Fields = FieldList<&PublishedDifference::difference>;
};

// Names the first call that differs, from the last calls of rank 0 and of another rank.
std::string NameFirstDifferingCall(const Calls& of_rank_zero, const Calls& of_other, size_t other_rank);

// The one form of the message, wherever the difference was found.
Status SequencesDiffer(const std::string& difference);

// Compares the published calls of all ranks as they come. The Publisher of rank 0 owns one. Pure, one thread.
class SequenceComparison {
 public:
  // The most calls that are kept of one rank while another is behind; older ones are dropped. A difference among
  // dropped calls still shows, because the hash of a call covers every call before it.
  static constexpr size_t kMostKept = size_t{1} << 14;

  explicit SequenceComparison(int ranks) : published_(static_cast<size_t>(ranks)) {}

  // Takes a rank's next calls, ascending, perhaps with gaps. Returns the first difference that they show between rank 0
  // and another rank: "rank 0 made ..., rank 2 made ...".
  std::optional<std::string> Add(size_t rank, const Calls& calls);

  // Call it when the rank publishes no more: no call is kept for it then.
  void Forget(size_t rank);

  // How many calls wait for the same call of another rank.
  size_t kept() const;

 private:
  // What one rank has published.
  struct Published {
    bool gone = false;
    uint64_t compared = 0;                    // calls below it were the same as rank 0's
    std::deque<engine::SequenceEntry> calls;  // without gaps
  };

  static void Append(Published& published, const Calls& calls);
  std::optional<std::string> Compare(size_t rank);
  void DropCompared();

  std::vector<Published> published_;
};

// Remembers that the ranks made different calls. From then on their blocks may lie at different offsets, so the pool
// hands out none. Each symmetric pool owns one. Any thread; to ask costs one load.
class Divergence {
 public:
  bool known() const { return known_.load(std::memory_order_acquire); }
  // OK, or kDisagreement with the first difference that was noted: later ones follow from it.
  Status status() const;
  void Note(const Status& difference);
  // A new sequence of calls begins.
  void Forget();

 private:
  std::atomic<bool> known_{false};
  mutable Mutex mutex_{LockRank::kLeaf};
  Status first_ COMMPOOL_GUARDED_BY(mutex_);
};

// Publishes a symmetric pool's calls in the background. So ranks that made different calls learn it before their next
// collective call (rule 4). After every 64 calls each rank sends their hashes to rank 0. Rank 0 compares them, and
// tells every rank of the first difference.
//
// The publisher works on the thread of the link's watcher and waits for nothing. A dead or slow peer delays nobody: the
// comparison continues without it, or catches up later. The pool owns it.
class Publisher {
 public:
  static constexpr uint64_t kEvery = 64;
  // The most calls that wait to be published. Calls that find no room leave a gap; the hashes of later calls cover
  // them.
  static constexpr size_t kMostOffered = 4096;

  // `divergence` must outlive the publisher, which begins at once. REQUIRES: a line; without one nothing is published.
  Publisher(int rank, int ranks, std::unique_ptr<BackgroundLine> line, Divergence& divergence);
  // Returns once its work no longer runs.
  ~Publisher();

  // Call it after every call that was appended to the log. Once 64 are new it hands them over, which takes a system
  // call. One thread at a time.
  void Offer(const engine::SequenceLog& log);

 private:
  Calls TakeOffered();
  // Takes the calls that were offered meanwhile: rank 0 compares them, others send them.
  void PublishOffered();
  void Hear();
  void Compare(size_t rank, const Calls& calls);

  const int rank_;
  const int ranks_;
  const std::unique_ptr<BackgroundLine> line_;
  Divergence& divergence_;
  Mutex mutex_{LockRank::kLeaf};
  Calls offered_ COMMPOOL_GUARDED_BY(mutex_);  // has memory for kMostOffered from the beginning
  uint64_t offered_count_ = 0;

  SequenceComparison comparison_;  // the watcher's own
};

}  // namespace commpool::internal
