#include "src/registration/home_links.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/registration/link_channel.h"
#include "src/registration/rank_admission.h"

namespace commpool::internal {

namespace {

// Sends `mine` to all and returns everybody's.
Result<std::vector<Introduction>> ExchangeOverHome(const Driver& driver, const Communicator& home,
                                                   const Introduction& mine, uint64_t deadline_ms,
                                                   UnansweredGathers& unanswered) {
  std::vector<std::string> received = COMMPOOL_TRY(
      GatherOver(driver, home, Insist([&] { return Pad(mine); }),
                 {.call = "create",
                  .likely_cause = "not every rank creates the pool, or one has another collective at this place; a "
                                  "thread that owns several ranks creates their pools in one call"},
                 deadline_ms, unanswered));
  return DecodePadded(std::move(received));
}

bool AllHaveTheLink(const std::vector<Introduction>& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const Introduction& other) { return other.link != 0 && other.link == all[0].link; });
}

// Ranks count differently after a create that failed on some of them. The highest of their numbers is free on all.
uint64_t NextChannel(const std::vector<Introduction>& all) {
  uint64_t next = 0;
  for (const Introduction& one : all) next = std::max(next, one.next_channel);
  return next;
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> HomeLinks::Open(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms, UnansweredGathers& unanswered) {
  if (home.ranks == 1) return MakeSelfChannel();
  const std::chrono::milliseconds deadline(deadline_ms);
  const auto channel_of = [&](const std::shared_ptr<HomeLink>& link, uint64_t number) {
    return std::unique_ptr<AgreementChannel>(std::make_unique<LinkChannel>(link, number, deadline));
  };
  const std::shared_ptr<HomeLink> existing = Find(home);
  std::optional<Listener> listener;  // even if rank 0 has a link already: other ranks may have none
  // Do not return an error here: the other ranks would wait for this one in NCCL's call.
  Introduction mine = Insist([&] { return Introduce(home.rank, listener); });
  if (existing != nullptr) {
    mine.link = existing->id();
    mine.next_channel = existing->next_channel();
  }
  std::vector<Introduction> all = COMMPOOL_TRY(ExchangeOverHome(driver, home, mine, deadline_ms, unanswered));
  if (AllHaveTheLink(all)) return channel_of(existing, NextChannel(all));
  if (Status status = CheckReach(all); !status.ok()) return status;
  const LinkOptions options{.rank = home.rank, .ranks = home.ranks, .deadline = deadline, .key = all.front().key};
  Result<std::shared_ptr<HomeLink>> link =
      listener ? HomeLink::Accept(options, std::move(*listener)) : HomeLink::Join(options, all.front().address);
  if (!link.ok()) return link.status();
  Keep(home, *link);
  return channel_of(*link, kFirstChannel);
}

std::shared_ptr<HomeLink> HomeLinks::Find(const Communicator& home) {
  std::shared_ptr<HomeLink> link;  // declared before the lock: if it is the last, the link ends after the lock
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
