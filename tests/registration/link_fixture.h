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
#include "tests/registration/joined.h"

namespace commpool::internal {

using Links = std::vector<std::shared_ptr<HomeLink>>;
using Channels = std::vector<std::unique_ptr<AgreementChannel>>;

constexpr HashKey kKey = {42, 43};
constexpr std::chrono::milliseconds kLong{20000};
constexpr std::chrono::milliseconds kShort{200};

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() : listener_(Listener::Open().value()), address_(listener_->address()) {}

  Result<std::shared_ptr<HomeLink>> Open(int rank, int ranks, std::chrono::milliseconds deadline) {
    const LinkOptions options{.rank = rank, .ranks = ranks, .deadline = deadline, .key = kKey};
    return rank == 0 ? HomeLink::Accept(options, std::move(*listener_)) : HomeLink::Join(options, address_);
  }

  // Runs each rank on its own thread, and waits for all.
  static void ForEachRank(int ranks, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  Links OpenAll(int ranks, std::chrono::milliseconds deadline = kLong) {
    Links links(static_cast<size_t>(ranks));
    ForEachRank(ranks, [&](int rank) { links[static_cast<size_t>(rank)] = Open(rank, ranks, deadline).value(); });
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
    const Deadline deadline = DeadlineAfter(kLong);
    while (!link.lost_ranks()->any() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(link.lost_ranks()->first(), rank);
  }

  const std::string& address() const { return address_; }

 private:
  std::optional<Listener> listener_;
  std::string address_;
};

}  // namespace commpool::internal
