// Ranks meet even while silent strangers hold connections to their ports.
#include "src/emulator/nccl/bootstrap.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/base/expect_status.h"
#include "tests/base/silent_strangers.h"
#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::emulated_nccl {
namespace {

Deadline Soon() { return DeadlineAfter(std::chrono::seconds(20)); }

class Bootstrap : public ::testing::Test {
 protected:
  Bootstrap() {
    testing::Api();  // the emulated driver, whose settings the bootstrap reads
    id_ = MakeUniqueId().value();
  }

  std::future<Status> JoinAs(int rank, int ranks) {
    PeerInfo own;
    own.rank = rank;
    own.ranks = ranks;
    return std::async(std::launch::async, [this, own] { return Join(id_, own, Soon()).status(); });
  }

  // The id holds the address of the root as text, behind two numbers.
  std::string RootAddress() const { return id_.internal + 2 * sizeof(uint64_t); }

  ncclUniqueId id_{};
};

TEST_F(Bootstrap, ASilentStrangerOnTheRootsPortBlocksNobody) {
  const Connection stranger = Connect(RootAddress(), Soon()).value();
  std::future<Status> first = JoinAs(0, 2);
  std::future<Status> second = JoinAs(1, 2);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(Bootstrap, ElevenHundredSilentStrangersOnTheRootsPortKeepNobodyOut) {
  const SilentStrangers strangers(RootAddress(), 1100);
  const DescriptorLimit usual(1024);
  EXPECT_TRUE(strangers.AwaitAll());
  std::vector<std::future<Status>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(JoinAs(rank, 4));
  for (std::future<Status>& rank : ranks) {
    ExpectOk(rank.get());
  }
}

// The last of two ranks, played by hand: it learns rank 0's address before it connects.
class LastRank {
 public:
  LastRank(const ncclUniqueId& id, const std::string& root) : root_(Connect(root, Soon()).value()) {
    own_.magic = MagicOf(id);
    own_.rank = 1;
    own_.ranks = 2;
    EXPECT_TRUE(root_.Send(&own_, sizeof own_, Soon()).ok());
  }

  std::string AddressOfRankZero() {
    std::array<char, 256> reason{};
    std::array<PeerInfo, 2> peers{};
    EXPECT_TRUE(root_.Receive(&reason, sizeof reason, Soon()).ok());
    EXPECT_TRUE(root_.Receive(&peers, sizeof peers, Soon()).ok());
    return peers[0].address.data();
  }

  Connection Greet(const std::string& rank_zero, int32_t channel) const {
    const struct {
      uint64_t magic;
      int32_t rank;
      int32_t channel;
    } hello = {own_.magic, own_.rank, channel};
    Connection connection = Connect(rank_zero, Soon()).value();
    EXPECT_TRUE(connection.Send(&hello, sizeof hello, Soon()).ok());
    return connection;
  }

 private:
  PeerInfo own_;
  Connection root_;
};

TEST_F(Bootstrap, ASilentStrangerOnARanksPortBlocksNobody) {
  std::future<Status> first = JoinAs(0, 2);
  LastRank last(id_, RootAddress());
  const std::string rank_zero = last.AddressOfRankZero();
  const Connection stranger = Connect(rank_zero, Soon()).value();
  const Connection data = last.Greet(rank_zero, 0);
  const Connection control = last.Greet(rank_zero, 1);
  ExpectOk(first.get());
}

}  // namespace
}  // namespace commpool::internal::emulated_nccl
