// Home links of several ranks, as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/library/registration/home_links.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {

template <typename T>
class ByRank : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  T& operator[](int rank) { return this->at(static_cast<size_t>(rank)); }
  const T& operator[](int rank) const { return this->at(static_cast<size_t>(rank)); }
};
using Links = ByRank<std::shared_ptr<HomeLink>>;
using Channels = ByRank<std::unique_ptr<AgreementChannel>>;

// A decision that shows what a channel carries: the bytes of all ranks, as "[first][second]".
inline std::string Join(const std::vector<std::string>& contents) {
  std::string all;
  for (const std::string& content : contents) all += "[" + content + "]";
  return all;
}
inline Result<std::string> JoinOver(AgreementChannel& channel, const std::string& mine = "mine",
                                    const std::string& step = "reserve") {
  return channel.Decide(mine, step, Join);
}

// Runs each rank on its own thread, and waits for all.
inline void ForEachRank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Waits until it holds.
inline void Await(const std::function<bool()>& holds) {
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(30));
  while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(holds());
}

constexpr HashKey kKey = {42, 43};
constexpr std::chrono::milliseconds kLong{20000};
constexpr std::chrono::milliseconds kShort{200};

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() : listener_(Listener::Open().value()), address_(listener_->address()) {}

  Result<std::shared_ptr<HomeLink>> Open(int rank, int ranks, std::chrono::milliseconds deadline) {
    const LinkOptions options{.rank = rank, .ranks = ranks, .deadline = deadline, .key = kKey};
    return rank == 0 ? HomeLink::Accept(options, TakeListener()) : HomeLink::Join(options, address_);
  }

  Links OpenAll(int ranks, std::chrono::milliseconds deadline = kLong) {
    Links links(static_cast<size_t>(ranks));
    ForEachRank(ranks, [&](int rank) { links[rank] = Open(rank, ranks, deadline).value(); });
    return links;
  }

  static Channels ChannelsOf(const Links& links, uint64_t number = kFirstChannel,
                             std::chrono::milliseconds deadline = kLong) {
    Channels channels;
    for (const auto& link : links) channels.push_back(std::make_unique<LinkChannel>(link, number, deadline));
    return channels;
  }
  Channels OpenChannels(int ranks, std::chrono::milliseconds deadline = kLong) {
    return ChannelsOf(OpenAll(ranks, deadline), kFirstChannel, deadline);
  }

  // Waits until the link knows that the rank is lost.
  static void AwaitLoss(const HomeLink& link, int rank) {
    Await([&] { return link.lost_ranks()->any(); });
    EXPECT_EQ(link.lost_ranks()->first(), rank);
  }

  const std::string& address() const { return address_; }
  Listener TakeListener() { return std::move(*listener_); }

 private:
  std::optional<Listener> listener_;
  std::string address_;
};

}  // namespace commpool::internal
