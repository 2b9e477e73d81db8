// The owner's server meets callers that say nothing, say words that it does not know, or never listen; and what ranks
// offer each other through it.
#include "src/library/sharing/share_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/library/driver/handles.h"
#include "src/library/sharing/rank_offers.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class NoMemory : public SharedMemory {
 public:
  Result<Exported> Export(uint64_t, std::optional<uint64_t>) override {
    return Status(StatusCode::kNotFound, "no segment has that address");
  }
  void LetGo(uint64_t) override {}
};

// A caller without the library's code, which may send any bytes.
class Stranger {
 public:
  explicit Stranger(const std::string& path) : socket_(ConnectToOwner(path, DeadlineAfter({})).value()) {}

  bool Say(const std::string& bytes) {
    return send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // A message that carries the descriptor so many times; the connection's end with it.
  void SayLastWith(const std::string& bytes, int descriptor, size_t times) {
    const std::vector<int> descriptors(times, descriptor);
    std::vector<char> control(CMSG_SPACE(times * sizeof(int)));
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(times * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), times * sizeof(int));
    EXPECT_EQ(sendmsg(socket_.get(), &header, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    while (Hear().has_value()) {
    }
  }
  bool Say(ShareKind kind) { return Say(EncodeShare({kind, {1, 2, 3}, "text", 7})); }
  // The next answer; nothing where the connection has ended.
  std::optional<ShareMessage> Hear() {
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, -1);
    char bytes[kMostShareBytes];
    const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count <= 0) return std::nullopt;
    return DecodeShare({bytes, static_cast<size_t>(count)}).value();
  }
  bool Stopped() {  // until the owner takes more, or has ended it
    pollfd wait{socket_.get(), POLLOUT, 0};
    poll(&wait, 1, -1);
    return (wait.revents & (POLLHUP | POLLERR)) != 0;
  }

 private:
  PrivateDescriptor socket_;
};

class ServerTest : public DriverTest {
 protected:
  ServerTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    server_ = std::make_unique<ShareServer>(driver(), folder_);
  }
  ~ServerTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  const PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current_{driver(), context_};
  std::string folder_ = "/tmp/commpool-test-XXXXXX";
  std::unique_ptr<ShareServer> server_;
};

class Server : public ServerTest {
 protected:
  SharedPoolFacts Facts(uint64_t number) const { return {number, "pool", "", memory_, 1000}; }
  void ExpectItServes() {
    Stranger stranger(ticket_.socket);
    EXPECT_TRUE(stranger.Say(ShareKind::kAskBlock));
    ExpectRefusal(stranger.Hear(), "no ticket came first");
  }
  static void ExpectRefusal(const std::optional<ShareMessage>& answer, const std::string& part) {
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, ShareKind::kRefused);
    EXPECT_NE(answer->text.find(part), std::string::npos) << answer->text;
  }

  const std::shared_ptr<SharedMemory> memory_ = std::make_shared<NoMemory>();
  const Ticket ticket_ = Ticket::Parse(server_->SharePool(Facts(3), {}).value()).value();
};

TEST_F(Server, EndsAConnectionWithWordsThatItDoesNotKnow) {
  for (const std::string& words : {std::string("hello"), std::string(3000, 'x'), std::string(56, '\0')}) {
    Stranger stranger(ticket_.socket);
    EXPECT_TRUE(stranger.Say(words));
    ExpectRefusal(stranger.Hear(), "a malformed message");
    EXPECT_FALSE(stranger.Hear().has_value());
    ExpectItServes();
  }
}

TEST_F(Server, NamesAnotherVersion) {
  std::string hello = EncodeShare({ShareKind::kHello, {}, {}});
  hello[4] = 9;
  Stranger stranger(ticket_.socket);
  EXPECT_TRUE(stranger.Say(hello));
  ExpectRefusal(stranger.Hear(), "speaks version 9 of shared pools, this one version 2");
}

TEST_F(Server, TellsNothingBeforeATicket) {
  Stranger stranger(ticket_.socket);
  for (const ShareKind kind : {ShareKind::kAskSegment, ShareKind::kAskBlock, ShareKind::kLetGo, ShareKind::kAsleep,
                               ShareKind::kWelcome, ShareKind::kSleep, ShareKind::kAwake}) {
    EXPECT_TRUE(stranger.Say(kind));
    ExpectRefusal(stranger.Hear(), "no ticket came first");
  }
  EXPECT_TRUE(stranger.Say(ShareKind::kHello));
  ExpectRefusal(stranger.Hear(), "or the ticket is forged");
}

TEST_F(Server, RefusesAHelloWithoutEvents) {
  Stranger stranger(ticket_.socket);
  const ShareMessage hello{ShareKind::kHello, {ticket_.secret[0], ticket_.secret[1], ticket_.pool}, "none"};
  EXPECT_TRUE(stranger.Say(EncodeShare(hello)));
  ExpectRefusal(stranger.Hear(), "sent no events");
  ExpectItServes();
}

TEST_F(Server, KeepsNoDescriptorThatAStrangerSends) {
  const auto ends_with = [&](const std::string& words, size_t times) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    Stranger(ticket_.socket).SayLastWith(words, pipe_ends[1], times);
    close(pipe_ends[1]);
    pollfd wait{pipe_ends[0], POLLIN, 0};
    poll(&wait, 1, 10000);  // nobody has the other end any more
    EXPECT_NE(wait.revents & POLLHUP, 0) << "'" << words << "' with " << times;
    close(pipe_ends[0]);
  };
  for (const std::string words : {"", "garbage"}) {
    for (const size_t times : {1, 2, 3, 200}) ends_with(words, times);
  }
}

TEST_F(Server, DropsACallerThatAsksAndNeverListens) {
  Stranger stranger(ticket_.socket);
  while (stranger.Say(ShareKind::kAskBlock) || !stranger.Stopped()) {
  }
  ExpectItServes();
}

TEST_F(Server, ServesOthersBesideSilentCallers) {
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int count = 0; count < 100; ++count) silent.push_back(std::make_unique<Stranger>(ticket_.socket));
  ExpectItServes();
}

TEST_F(Server, EndsWithItsSocket) {
  Stranger stranger(ticket_.socket);
  server_->Stop();
  EXPECT_FALSE(stranger.Hear().has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(server_->SharePool(Facts(4), {}).status().code(), StatusCode::kFailedPrecondition);
}

// Descriptors that ranks offer each other: a caller that knows the secret gets them, as long as they are offered.
class RankOffers : public ServerTest {
 protected:
  // Each is the reading end of a pipe that holds its number.
  static std::vector<PrivateDescriptor> Numbered(char count) {
    std::vector<PrivateDescriptor> made;
    for (char number = 0; number < count; ++number) {
      int ends[2] = {-1, -1};
      EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
      EXPECT_EQ(write(ends[1], &number, 1), 1);
      close(ends[1]);
      made.push_back(PrivateDescriptor::Make([&] { return FileDescriptor(ends[0]); }));
    }
    return made;
  }
  RankOffer Offer(char count) { return server_->Offer(Numbered(count)).value(); }
  static Result<FileDescriptor> Take(const OfferPlace& place, size_t number) {
    return TakeOffered(place, number, DeadlineAfter(std::chrono::seconds(20)));
  }
};

TEST_F(RankOffers, GoToEveryCallerThatKnowsTheSecret) {
  const RankOffer first = Offer(3);
  const RankOffer second = Offer(1);
  EXPECT_NE(first.place.secret, second.place.secret);
  for (const size_t number : {2, 0, 1}) {
    const FileDescriptor taken = Take(first.place, number).value();
    char read_number = -1;
    EXPECT_EQ(read(taken.get(), &read_number, 1), 1);
    EXPECT_EQ(static_cast<size_t>(read_number), number);
  }
  EXPECT_TRUE(Take(first.place, 0).ok());
  EXPECT_TRUE(Take(second.place, 0).ok());
}

TEST_F(RankOffers, AreRefusedBeyondTheirEndAndWithoutTheSecret) {
  const RankOffer offer = Offer(2);
  ExpectFailure(Take(offer.place, 2).status(), StatusCode::kNotFound, "it offers nothing any more");
  ExpectFailure(Take({offer.place.socket, {1, 2}}, 0).status(), StatusCode::kNotFound, "the secret is wrong");
}

TEST_F(RankOffers, EndWithTheirOwner) {
  OfferPlace place;
  {
    const RankOffer offer = Offer(1);
    place = offer.place;
    EXPECT_TRUE(Take(place, 0).ok());
  }
  ExpectFailure(Take(place, 0).status(), StatusCode::kNotFound, "it offers nothing any more");
}

// As of a rank on another host, or in a container with files of its own.
TEST_F(RankOffers, CannotBeTakenWhereNobodyListens) {
  const RankOffer offer = Offer(1);
  ExpectFailure(Take({folder_ + "/elsewhere", offer.place.secret}, 0).status(), StatusCode::kRemoteFailure,
                "its process has ended");
  server_->Stop();
  ExpectFailure(Take(offer.place, 0).status(), StatusCode::kRemoteFailure, "its process has ended");
  EXPECT_EQ(server_->Offer({}).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool::internal::testing
