// Publishes a symmetric pool's calls in the background: ranks that made different calls hear of it before their next
// collective one (rule 4). Every 64 calls each rank sends their hashes to rank 0; rank 0 compares, and tells
// every rank of the first difference.
//
// It has a thread of its own, which waits for nothing but calls, peers and its end. A dead or slow peer delays nobody:
// the comparison goes on without it, or catches up later.
#ifndef COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_
#define COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file_descriptor.h"
#include "src/base/socket.h"
#include "src/engine/sequence_log.h"
#include "src/registration/call_ring.h"
#include "src/registration/divergence.h"
#include "src/registration/message_stream.h"
#include "src/registration/sequence_comparison.h"

namespace commpool::internal {

class Publisher {
 public:
  static constexpr uint64_t kEvery = 64;

  // `connections` as a channel's TakeBackgroundConnections() gives them; `divergence` must outlive the publisher. Null
  // where there are no connections, or the system has no thread or descriptor left: nothing is published then.
  static std::unique_ptr<Publisher> Start(int rank, std::vector<Connection> connections, Divergence& divergence);
  // Ends the thread at once.
  ~Publisher();

  // Call it after every call that the log took in: it hands over the new ones once there are 64. One thread at a time;
  // it takes no lock, and makes a system call every 64 calls.
  void Offer(const engine::SequenceLog& log);

 private:
  Publisher(int rank, std::vector<Connection> connections, FileDescriptor wake, Divergence& divergence);

  void Run();
  // Waits until there are calls to publish, a peer has sent or takes more, or the end has come.
  void Await();
  void Wake();
  // The calls offered meanwhile: rank 0 compares them, others send them.
  void PublishOffered();
  void Hear();
  void Compare(size_t rank, const std::vector<engine::SequenceEntry>& calls);

  const int rank_;
  const FileDescriptor wake_;  // an eventfd
  Divergence& divergence_;
  CallRing offered_;
  uint64_t offered_count_ = 0;
  std::atomic<bool> ending_{false};

  // The thread's own.
  std::vector<MessageStream> peers_;  // of rank 0: peer i is rank i + 1; of others: rank 0
  SequenceComparison comparison_;
  std::thread thread_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_PUBLISHER_H_
