// The one thread of a home link: reads where nobody waits in a round, sends heartbeats, notes who is lost, tells who
// wants to know, and does the channels' work in the background.
//
// It wakes when a peer's connection ends, when it is woken, and every 50 ms; never for the bytes of a round.
#ifndef COMMPOOL_SRC_REGISTRATION_LINK_WATCHER_H_
#define COMMPOOL_SRC_REGISTRATION_LINK_WATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "commpool/status.h"
#include "src/registration/home_link.h"
#include "src/registration/readiness_set.h"

namespace commpool::internal {

class LinkWatcher {
 public:
  static Result<std::unique_ptr<LinkWatcher>> Make(HomeLink& link);
  ~LinkWatcher() { Stop(); }

  Status Watch(int descriptor, size_t tag) { return ends_.Add(descriptor, Interest::kEnd, tag); }
  Status Start();
  // Returns when the thread has ended.
  void Stop();
  void Wake() { ends_.Wake(); }

  void AddWork(uint64_t channel, std::function<void()> work);
  // Returns when it does not run any more.
  void RemoveWork(uint64_t channel);

 private:
  LinkWatcher(HomeLink& link, ReadinessSet ends) : link_(link), ends_(std::move(ends)) {}

  void Run();
  void WatchUntilTheEnd();

  HomeLink& link_;
  ReadinessSet ends_;
  std::atomic<bool> ending_{false};

  // Held while work runs; not a Mutex of ours, for work takes the link's.
  std::mutex mutex_;
  std::map<uint64_t, std::function<void()>> work_;

  std::thread thread_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_LINK_WATCHER_H_
