#include "src/registration/home_links.h"

#include <vector>

namespace commpool::internal {

std::shared_ptr<HomeLink> HomeLinks::Find(const Communicator& home) {
  std::shared_ptr<HomeLink> link;  // ends, where it is the last, after the lock
  {
    MutexLock lock(mutex_);
    const auto found = links_.find(home.handle);
    if (found == links_.end()) return nullptr;
    link = found->second.lock();
    if (link == nullptr) links_.erase(found);
  }
  const bool usable =
      link != nullptr && link->rank() == home.rank && link->ranks() == home.ranks && !link->lost_ranks()->any();
  return usable ? link : nullptr;
}

void HomeLinks::Keep(const Communicator& home, const std::shared_ptr<HomeLink>& link) {
  MutexLock lock(mutex_);
  links_[home.handle] = link;
}

void HomeLinks::StopWatching() {
  std::vector<std::shared_ptr<HomeLink>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [handle, link] : links_) {
      if (std::shared_ptr<HomeLink> alive = link.lock()) all.push_back(std::move(alive));
    }
  }
  for (const std::shared_ptr<HomeLink>& link : all) link->StopWatching();
}

}  // namespace commpool::internal
