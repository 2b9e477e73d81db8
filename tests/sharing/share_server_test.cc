// The owner's server meets callers that say nothing, say words that it does not know, or never listen.
#include "src/library/sharing/share_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/library/driver/handles.h"
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
  PrivateSocket socket_;
};

class Server : public DriverTest {
 protected:
  Server()
      : context_(PrimaryContext::Retain(driver(), 0).value()),
        current_(driver(), context_),
        memory_(std::make_shared<NoMemory>()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    server_ = std::make_unique<ShareServer>(driver(), folder_);
    ticket_ = Ticket::Parse(server_->SharePool(Facts(3), {}).value()).value();
  }
  ~Server() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

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

  PrimaryContext context_;
  ContextGuard current_;
  const std::shared_ptr<SharedMemory> memory_;
  std::string folder_ = "/tmp/commpool-test-XXXXXX";
  std::unique_ptr<ShareServer> server_;
  Ticket ticket_;
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

}  // namespace
}  // namespace commpool::internal::testing
