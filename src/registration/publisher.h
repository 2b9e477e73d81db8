// Publishes a symmetric pool's calls in the background. So ranks that made different calls learn it before their next
// collective call (rule 4). After every 64 calls each rank sends their hashes to rank 0. Rank 0 compares them, and
// tells every rank of the first difference.
//
// The publisher works on the thread of the link's watcher and waits for nothing. A dead or slow peer delays nobody: the
// comparison continues without it, or catches up later.
#ifndef COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_
#define COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_

#include <cstdint>
#include <memory>

#include "src/base/mutex.h"
#include "src/engine/sequence_log.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/divergence.h"

namespace commpool::internal {

// The publisher of one pool on this rank; the pool owns it.
class Publisher {
 public:
  static constexpr uint64_t kEvery = 64;
  // The most calls that wait to be published. Calls that find no room leave a gap; the hashes of later calls cover
  // them.
  static constexpr size_t kMostOffered = 4096;

  // `divergence` must outlive the publisher. Null where there is no line: nothing is published then.
  static std::unique_ptr<Publisher> Start(int rank, int ranks, std::unique_ptr<BackgroundLine> line,
                                          Divergence& divergence);
  // Returns once its work no longer runs.
  ~Publisher();

  // Call it after every call that was appended to the log. Once 64 are new it hands them over, which takes a system
  // call. One thread at a time.
  void Offer(const engine::SequenceLog& log);

 private:
  Publisher(int rank, int ranks, std::unique_ptr<BackgroundLine> line, Divergence& divergence);

  void Work();
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

#endif  // COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_
