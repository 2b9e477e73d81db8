// A connection ends with its process, even if children of it live on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "src/library/base/socket.h"
#include "tests/base/socket_pair.h"

namespace commpool::internal {
namespace {

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

TEST(PrivateSocket, AChildThatLivesOnDoesNotHoldTheConnectionOfItsDeadParent) {
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

TEST(PrivateSocket, AChildDoesNotListenOnItsParentsPort) {
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
  const Result<Connection> connection = Connect(address, DeadlineAfter(std::chrono::milliseconds(20)));
  EXPECT_FALSE(connection.ok());
  life = Pipe();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(PrivateSocket, AnObjectThatEndsInTheChildClosesNoFileOfTheChilds) {
  PrivateSocket socket = PrivateSocket::Open();
  ASSERT_TRUE(socket.valid());
  const pid_t child = fork();
  if (child == 0) {
    // If the number were free, the child's next file would get it, and lose it here.
    const int file = dup(STDOUT_FILENO);
    { const PrivateSocket ended = std::move(socket); }
    _exit(fcntl(file, F_GETFD) >= 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PrivateSocket, TheParentKeepsASocketThatItsChildCloses) {
  Listener listener = Listener::Open().value();
  Connection client = Connect(listener.address(), Later()).value();
  Connection server = NextCaller(listener);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  int sent = 42;
  int received = 0;
  EXPECT_TRUE(client.Send(&sent, sizeof(sent), Later()).ok());
  EXPECT_TRUE(server.Receive(&received, sizeof(received), Later()).ok());
  EXPECT_EQ(received, 42);
}

}  // namespace
}  // namespace commpool::internal
