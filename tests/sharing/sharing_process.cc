#include "tests/sharing/sharing_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace commpool::internal::testing {

namespace {

constexpr const char* kPeer = "--peer";
constexpr size_t kMostBytes = 4096;

template <typename Message, typename Word>
std::string Text(const Message& message, Word Message::*word) {
  std::ostringstream text;
  text << static_cast<int>(message.*word) << ' ' << message.pointer << ' ' << message.number << ' ' << message.text;
  return text.str();
}

template <typename Message, typename Word>
void Parse(const std::string& text, Word Message::*word, Message* message) {
  std::istringstream fields(text);
  int first = 0;
  fields >> first >> message->pointer >> message->number;
  message->*word = static_cast<Word>(first);
  fields.get();
  std::getline(fields, message->text, '\0');
}

bool Receive(int socket, std::string* text) {
  char bytes[kMostBytes];
  const ssize_t count = recv(socket, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  text->assign(bytes, static_cast<size_t>(count));
  return true;
}

bool Send(int socket, const std::string& text) {
  return send(socket, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

void Serve(int socket) {
  SharingWork work;
  std::string text;
  while (Receive(socket, &text)) {
    Order order{Do::kMakePool};
    Parse(text, &Order::what, &order);
    if (!Send(socket, Text(work.Carry(order), &Outcome::status))) break;
  }
}

}  // namespace

SharingProcess::SharingProcess(const char* emulator) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  process_ = fork();
  if (process_ == 0) {
    if (emulator != nullptr) setenv("COMMPOOL_EMULATOR", emulator, 1);
    dup2(ends[1], STDIN_FILENO);  // the only descriptor that survives exec besides output
    execl("/proc/self/exe", "peer", kPeer, nullptr);
    _exit(127);
  }
  socket_ = FileDescriptor(ends[0]);
  close(ends[1]);
}

void SharingProcess::Begin(const Order& order) { EXPECT_TRUE(Send(socket_.get(), Text(order, &Order::what))); }

Outcome SharingProcess::Answer() {
  std::string text;
  Outcome outcome;
  if (!Receive(socket_.get(), &text)) {
    ADD_FAILURE() << "the other process is gone";
    return {COMMPOOL_INTERNAL, 0, 0, "gone"};
  }
  Parse(text, &Outcome::status, &outcome);
  return outcome;
}

bool SharingProcess::HasAnswered() const {
  pollfd wait{socket_.get(), POLLIN, 0};
  return poll(&wait, 1, 0) == 1;
}

Outcome SharingProcess::Ask(const Order& order) {
  Begin(order);
  return Answer();
}

void SharingProcess::End() {
  if (process_ < 0) return;
  socket_ = FileDescriptor();
  int status = 0;
  EXPECT_EQ(waitpid(std::exchange(process_, -1), &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0, true)
      << status;
}

void SharingProcess::Kill() {
  kill(process_, SIGKILL);
  waitpid(std::exchange(process_, -1), nullptr, 0);
}

void SharingProcess::Stop() const {
  kill(process_, SIGSTOP);
  waitpid(process_, nullptr, WUNTRACED);
}

void SharingProcess::Continue() const { kill(process_, SIGCONT); }

std::string SocketFolder() { return std::string(std::getenv("XDG_RUNTIME_DIR")) + "/commpool"; }

std::vector<std::string> Sockets() {
  std::vector<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(SocketFolder())) sockets.push_back(entry.path());
  return sockets;
}

}  // namespace commpool::internal::testing

int main(int argc, char** argv) {
  using namespace commpool::internal::testing;
  if (argc == 2 && std::string(argv[1]) == kPeer) {
    Serve(STDIN_FILENO);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  std::string folder = "/tmp/commpool-test-XXXXXX";  // short: it is a part of the names of sockets
  if (mkdtemp(folder.data()) == nullptr) return 1;
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
