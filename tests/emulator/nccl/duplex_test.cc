#include "src/emulator/nccl/duplex.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "tests/base/socket_pair.h"

namespace commpool::internal::emulated_nccl {
namespace {

TEST(SendAndReceive, LetsTwoPeersSendMoreThanTheSocketsHold) {
  Pair pair = MakePair();
  constexpr size_t kBytes = 16 << 20;
  std::vector<char> left(kBytes, 'l');
  std::vector<char> right(kBytes, 'r');
  std::vector<char> left_got(kBytes);
  std::vector<char> right_got(kBytes);
  std::thread other([&] {
    EXPECT_TRUE(SendAndReceive(pair.server, right.data(), kBytes, pair.server, right_got.data(), kBytes, Later()).ok());
  });
  EXPECT_TRUE(SendAndReceive(pair.client, left.data(), kBytes, pair.client, left_got.data(), kBytes, Later()).ok());
  other.join();
  EXPECT_EQ(left_got, right);
  EXPECT_EQ(right_got, left);
}

TEST(SendAndReceive, WorksAroundARing) {
  constexpr size_t kRanks = 3;
  constexpr size_t kCount = 1 << 20;
  std::array<Pair, kRanks> links;  // links[i].client belongs to rank i, links[i].server to rank i + 1
  for (Pair& link : links) link = MakePair();
  std::array<std::vector<int>, kRanks> got;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<int> sent(kCount, static_cast<int>(rank));
      got[rank].resize(kCount);
      Connection& next = links[rank].client;
      Connection& previous = links[(rank + kRanks - 1) % kRanks].server;
      EXPECT_TRUE(SendAndReceive(next, sent.data(), kCount * sizeof(int), previous, got[rank].data(),
                                 kCount * sizeof(int), Later())
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(got[rank], std::vector<int>(kCount, static_cast<int>((rank + kRanks - 1) % kRanks)));
  }
}

TEST(SendAndReceive, GivesUpAtTheDeadline) {
  Pair pair = MakePair();
  char byte = 0;
  EXPECT_EQ(SendAndReceive(pair.client, &byte, 1, pair.client, &byte, 1, Soon()).code(), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace commpool::internal::emulated_nccl
