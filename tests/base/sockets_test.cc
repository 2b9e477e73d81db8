// Listeners, connections and receptions; and that a connection ends with its process, even if children of it live on.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

#include "src/library/base/reception.h"
#include "src/library/base/socket.h"
#include "tests/base/expect_status.h"
#include "tests/base/socket_pair.h"

namespace commpool::internal {
namespace {

void ExpectCarried(Connection& from, Connection& to, int value) {
  int received = 0;
  ASSERT_TRUE(from.Send(&value, sizeof value, Later()).ok()) << value;
  ASSERT_TRUE(to.Receive(&received, sizeof received, Later()).ok()) << value;
  EXPECT_EQ(received, value);
}

// An address at which nothing listens.
std::string DeadAddress() { return Listener::Open().value().address(); }

TEST(Listener, AdvertisesAHostAndAPort) {
  const Listener listener = Listener::Open().value();
  const size_t colon = listener.address().rfind(':');
  ASSERT_NE(colon, std::string::npos);
  EXPECT_GT(std::stoi(listener.address().substr(colon + 1)), 0);
  EXPECT_NE(listener.address().substr(0, colon), "0.0.0.0");
}

TEST(Listener, IsReachedAtTheAddressThatItAdvertises) {
  Listener listener = Listener::Open().value();
  const Connection client = Connect(listener.address(), Later()).value();
  EXPECT_TRUE(NextCaller(listener).valid());
}

TEST(Listener, IsReachedAtNoOtherAddressOfItsHost) {
  const Listener listener = Listener::OpenOn("127.0.0.2").value();
  EXPECT_FALSE(Connect("127.0.0.1" + listener.address().substr(listener.address().rfind(':')), Soon()).ok());
}

TEST(Listener, SaysWhyOnlyItsHostReachesIt) {
  EXPECT_NE(Listener::OpenOn("=no-such-interface").value().why_local(), "");
}

TEST(Listener, NamesTheAddressThatIsNotOfThisHost) {
  ExpectMessage(Listener::OpenOn("192.0.2.1").status(), "192.0.2.1: ");
}

TEST(Connect, RefusesTextsThatAreNoAddresses) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "host:80", ":80"}) {
    EXPECT_EQ(Connect(address, Later()).status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(Connect, TriesAgainUntilTheDeadlineWhileThePortRefuses) {
  const std::string address = DeadAddress();
  ExpectFailure(Connect(address, Soon()).status(), StatusCode::kDeadlineExceeded, address);
}

TEST(Connection, CarriesBytesBothWays) {
  Pair pair = MakePair();
  ExpectCarried(pair.client, pair.server, 42);
  ExpectCarried(pair.server, pair.client, 43);
}

TEST(Connection, SendsNothingAtOnce) {
  Pair pair = MakePair();
  EXPECT_TRUE(pair.client.Send(nullptr, 0, Soon()).ok());
  EXPECT_TRUE(pair.client.Receive(nullptr, 0, Soon()).ok());
}

TEST(Connection, NamesThePeerThatDoesNotAnswer) {
  Pair pair = MakePair();
  char byte = 0;
  ExpectFailure(pair.client.Receive(&byte, 1, Soon()), StatusCode::kDeadlineExceeded, pair.client.peer());
}

TEST(Connection, SendEndsAtTheDeadlineWhereThePeerDoesNotRead) {
  Pair pair = MakePair();
  const std::vector<char> data(64 << 20);
  EXPECT_EQ(pair.client.Send(data.data(), data.size(), Soon()).code(), StatusCode::kDeadlineExceeded);
}

TEST(Connection, ReportsAClosedPeerWithoutASignal) {
  Pair pair = MakePair();
  pair.server = Connection();
  char byte = 0;
  EXPECT_EQ(pair.client.Receive(&byte, 1, Later()).code(), StatusCode::kRemoteFailure);
  // The peer's system may still accept the first bytes, then refuses the rest.
  const std::vector<char> data(64 << 20);
  EXPECT_EQ(pair.client.Send(data.data(), data.size(), Later()).code(), StatusCode::kRemoteFailure);
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) std::abort();
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
  FileDescriptor read_end;
  FileDescriptor write_end;
};

// Returns when the other end of the pipe is closed.
[[noreturn]] void LiveOn(const Pipe& pipe) {
  close(pipe.write_end.get());
  char byte = 0;
  while (read(pipe.read_end.get(), &byte, 1) > 0) {
  }
  _exit(0);
}

// A parent connects and forks; the child lives until `life` ends. The parent writes to the connection, and waits.
[[noreturn]] void ConnectAndFork(const std::string& address, const Pipe& life) {
  Connection connection = Connect(address, Later()).value();
  const pid_t child = fork();
  if (child == 0) LiveOn(life);
  if (!connection.Send(&child, sizeof(child), Later()).ok()) _exit(1);
  while (true) pause();
}

TEST(PrivateDescriptor, AChildThatLivesOnDoesNotHoldTheConnectionOfItsDeadParent) {
  Listener listener = Listener::Open().value();
  Pipe life;
  const pid_t parent = fork();
  if (parent == 0) ConnectAndFork(listener.address(), life);
  Connection connection = NextCaller(listener);
  pid_t child = 0;
  ASSERT_TRUE(connection.Receive(&child, sizeof(child), Later()).ok());

  kill(parent, SIGKILL);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  char byte = 0;
  const Status status = connection.Receive(&byte, 1, Later());
  EXPECT_EQ(status.code(), StatusCode::kRemoteFailure) << status.message();
  EXPECT_EQ(kill(child, 0), 0);  // it still lives
}

TEST(PrivateDescriptor, AChildDoesNotListenOnItsParentsPort) {
  Listener listener = Listener::Open().value();
  const std::string address = listener.address();
  Pipe life, begun;
  const pid_t child = fork();
  if (child == 0) {
    if (write(begun.write_end.get(), "x", 1) != 1) _exit(1);
    LiveOn(life);
  }
  char byte = 0;
  ASSERT_EQ(read(begun.read_end.get(), &byte, 1), 1);
  { const Listener closed = std::move(listener); }
  EXPECT_FALSE(Connect(address, Soon()).ok());
  life = Pipe();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(PrivateDescriptor, AnObjectThatEndsInTheChildClosesNoFileOfTheChilds) {
  PrivateDescriptor socket = PrivateDescriptor::OpenSocket();
  ASSERT_TRUE(socket.valid());
  const pid_t child = fork();
  if (child == 0) {
    // If the number were free, the child's next file would get it, and lose it here.
    const int file = dup(STDOUT_FILENO);
    { const PrivateDescriptor ended = std::move(socket); }
    _exit(fcntl(file, F_GETFD) >= 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PrivateDescriptor, TheParentKeepsASocketThatItsChildCloses) {
  Pair pair = MakePair();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ExpectCarried(pair.client, pair.server, 42);
}

constexpr std::chrono::milliseconds kShort{50};

void Say(Connection& connection, const std::string& words) {
  ASSERT_TRUE(connection.Send(words.data(), words.size(), Later()).ok());
}

bool IsClosed(Connection& connection) {
  char byte = 0;
  return connection.Receive(&byte, 1, Later()).code() == StatusCode::kRemoteFailure;
}

class Receptions : public ::testing::Test {
 protected:
  explicit Receptions(ReceptionOptions options = {.hello_bytes = 5, .most_silent = 2, .challenge = {}})
      : reception_(Listener::Open().value(), std::move(options)) {}

  Connection Call() { return Connect(reception_.address(), Later()).value(); }
  Connection CallWith(const std::string& words) {
    Connection caller = Call();
    Say(caller, words);
    return caller;
  }
  void ExpectNobody(int line = __builtin_LINE()) {
    EXPECT_EQ(reception_.Next(DeadlineAfter(kShort)).status().code(), StatusCode::kDeadlineExceeded)
        << "asked in line " << line;
  }
  void ExpectNext(const std::string& hello) { EXPECT_EQ(reception_.Next(Later()).value().hello, hello); }

  Reception reception_;
};

TEST_F(Receptions, LetInWhoSaysHello) {
  const Connection caller = CallWith("hello");
  ExpectNext("hello");
}

TEST_F(Receptions, HearAHelloThatComesInParts) {
  Connection caller = Call();
  Say(caller, "he");
  ExpectNobody();
  Say(caller, "llo, and more");
  Caller heard = reception_.Next(Later()).value();
  EXPECT_EQ(heard.hello, "hello");
  std::string more(10, '\0');
  ASSERT_TRUE(heard.connection.Receive(more.data(), more.size(), Later()).ok());
  EXPECT_EQ(more, ", and more");
}

TEST_F(Receptions, LetASilentCallerDelayNobody) {
  const Connection silent = Call();
  const Connection caller = CallWith("hello");
  EXPECT_TRUE(reception_.Next(Later()).ok());
}

TEST_F(Receptions, DropTheOneThatHasBeenSilentLongestForANewOne) {
  Connection first = Call();
  Connection second = Call();
  ExpectNobody();
  Connection third = Call();
  ExpectNobody();
  EXPECT_TRUE(IsClosed(first));
  for (Connection* caller : {&second, &third}) Say(*caller, "hello");
  EXPECT_TRUE(reception_.Next(Later()).ok());
  EXPECT_TRUE(reception_.Next(Later()).ok());
}

TEST_F(Receptions, DropNobodyThatHasSpoken) {
  Connection first = Call();
  Connection second = Call();
  ExpectNobody();
  Say(first, "hello");
  const Connection third = Call();
  ExpectNext("hello");
  Say(second, "hullo");
  ExpectNext("hullo");
}

TEST_F(Receptions, ForgetWhoGoes) {
  { const Connection gone = Call(); }
  const Connection caller = CallWith("hello");
  ExpectNext("hello");
  ExpectNobody();
}

class ChallengingReceptions : public Receptions {
 protected:
  ChallengingReceptions()
      : Receptions({.hello_bytes = 5, .most_silent = 2, .challenge = [this]() -> Result<std::string> {
                      return "who " + std::to_string(++challenges_);
                    }}) {}

  int challenges_ = 0;
};

TEST_F(ChallengingReceptions, RememberWhatEachCallerWasTold) {
  std::vector<Connection> callers;
  for (int caller = 0; caller < 2; ++caller) callers.push_back(Call());
  ExpectNobody();
  Say(callers[1], "hello");
  EXPECT_EQ(reception_.Next(Later()).value().challenge, "who 2");
  std::string told(5, '\0');
  ASSERT_TRUE(callers[0].Receive(told.data(), told.size(), Later()).ok());
  EXPECT_EQ(told, "who 1");
}

}  // namespace
}  // namespace commpool::internal
