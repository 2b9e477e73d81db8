// The folder of the owners' sockets: who may enter it, and what killed processes leave there.
#include "src/library/sharing/share_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "src/library/sharing/message_channel.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

constexpr uid_t kAnotherUser = 65534;

class ShareFolder : public ::testing::Test {
 protected:
  ShareFolder() {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    EXPECT_EQ(chmod(root_.c_str(), 0755), 0);
    folder_ = root_ + "/commpool";
  }
  ~ShareFolder() override { std::filesystem::remove_all(root_); }

  Status Refused() const { return ShareListener::Open(folder_).status(); }
  // What another user's process sees; its exit code is what `act` returns.
  template <typename Act>
  static int AsAnotherUser(Act act) {
    const pid_t child = fork();
    if (child == 0) _exit(setuid(kAnotherUser) == 0 ? act() : 100);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static bool MayBeAnotherUser() {
    return AsAnotherUser([] { return 0; }) == 0;
  }

  std::string root_ = "/tmp/commpool-test-XXXXXX";
  std::string folder_;
};

TEST_F(ShareFolder, IsMadeForThisUserAlone) {
  const ShareListener listener = ShareListener::Open(folder_).value();
  struct stat about = {};
  ASSERT_EQ(stat(folder_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0700u);
  EXPECT_TRUE(ConnectToOwner(listener.path(), DeadlineAfter({})).ok());
}

TEST_F(ShareFolder, ThatOthersMayEnterIsRefused) {
  for (const mode_t mode : {0701, 0710, 0770, 0755, 0777}) {
    std::filesystem::remove_all(folder_);
    ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    EXPECT_EQ(Refused().code(), StatusCode::kFailedPrecondition) << mode;
  }
}

TEST_F(ShareFolder, ThatIsALinkOrAFileIsRefused) {
  std::filesystem::create_directory(root_ + "/elsewhere");
  ASSERT_EQ(chmod((root_ + "/elsewhere").c_str(), 0700), 0);
  std::filesystem::create_directory_symlink(root_ + "/elsewhere", folder_);
  EXPECT_FALSE(Refused().ok());
  std::filesystem::remove(folder_);
  EXPECT_EQ(std::filesystem::is_empty(root_ + "/elsewhere"), true);
  close(creat(folder_.c_str(), 0600));
  EXPECT_FALSE(Refused().ok());
}

TEST_F(ShareFolder, OfAnotherUserIsRefused) {
  if (!MayBeAnotherUser()) GTEST_SKIP() << "this user may not become another one";
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(chown(folder_.c_str(), kAnotherUser, kAnotherUser), 0);
  EXPECT_EQ(Refused().code(), StatusCode::kFailedPrecondition);
}

TEST_F(ShareFolder, LetsNoOtherUserConnect) {
  if (!MayBeAnotherUser()) GTEST_SKIP() << "this user may not become another one";
  const ShareListener listener = ShareListener::Open(folder_).value();
  const std::string told = "its process belongs to another user";
  const auto connect = [&] {
    const Status status = ConnectToOwner(listener.path(), DeadlineAfter({})).status();
    return status.code() == StatusCode::kRemoteFailure && status.message().find(told) == 0 ? 0 : 1;
  };
  EXPECT_EQ(AsAnotherUser(connect), 0);
}

// Somebody opens the folder to all after the owner has looked at it: the owner still asks the kernel who calls.
TEST_F(ShareFolder, IsNotTheOnlyGuard) {
  if (!MayBeAnotherUser()) GTEST_SKIP() << "this user may not become another one";
  const ShareListener listener = ShareListener::Open(folder_).value();
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(listener.path().c_str(), 0777), 0);
  const auto check = [&] {
    const Result<PrivateDescriptor> socket = ConnectToOwner(listener.path(), DeadlineAfter({}));
    if (!socket.ok()) return 2;
    return CheckPeer(socket->get()).status().code() == StatusCode::kRemoteFailure ? 0 : 3;
  };
  EXPECT_EQ(AsAnotherUser(check), 0) << "nor does an importer trust another user's owner";
  const PrivateDescriptor caller = PrivateDescriptor::Accept(listener.descriptor());
  ExpectFailure(CheckPeer(caller.get()).status(), StatusCode::kRemoteFailure, "belongs to user 65534");
}

TEST_F(ShareFolder, IsSweptOfSocketsWhoseProcessesWereKilled) {
  const pid_t child = fork();
  if (child == 0) {
    const Result<ShareListener> killed = ShareListener::Open(folder_);
    _exit(killed.ok() ? 0 : 1);  // without destructors, as a kill
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_FALSE(std::filesystem::is_empty(folder_));
  const std::string left = std::filesystem::directory_iterator(folder_)->path();
  EXPECT_EQ(ConnectToOwner(left, DeadlineAfter({})).status().code(), StatusCode::kRemoteFailure);
  const ShareListener first = ShareListener::Open(folder_).value();
  EXPECT_FALSE(std::filesystem::exists(left));
  const ShareListener second = ShareListener::Open(folder_).value();
  EXPECT_TRUE(std::filesystem::exists(first.path())) << "who listens stays";
}

// Each of them sweeps the folder as it opens, and a socket is there before it listens.
TEST_F(ShareFolder, IsNotSweptOfSocketsThatOpenMeanwhile) {
  std::atomic<int> lost = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        const Result<ShareListener> listener = ShareListener::Open(folder_);
        if (!listener.ok() || access(listener->path().c_str(), F_OK) != 0) ++lost;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ShareFolder, HasNoSocketOnceItsListenerIsGone) {
  std::string path;
  {
    const ShareListener listener = ShareListener::Open(folder_).value();
    path = listener.path();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(ConnectToOwner(path, DeadlineAfter({})).status().code(), StatusCode::kRemoteFailure);
}

// What OpenIn chose, for a user who is not root.
TEST_F(ShareFolder, IsElsewhereWhereTheRuntimeDirectoryCannotHoldIt) {
  if (!MayBeAnotherUser()) GTEST_SKIP() << "this user may not become another one";
  const auto chosen_by_another = [&](const std::string& runtime_directory, const std::string& expected) {
    return AsAnotherUser([&] {
      const Result<ShareListener> listener = ShareListener::OpenIn("", runtime_directory);
      return listener.ok() && std::filesystem::path(listener->path()).parent_path() == expected ? 0 : 1;
    });
  };
  const std::string fallback = "/tmp/commpool-" + std::to_string(kAnotherUser);
  const std::string theirs = root_ + "/theirs";
  ASSERT_EQ(mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(chown(theirs.c_str(), kAnotherUser, kAnotherUser), 0);
  EXPECT_EQ(chosen_by_another(theirs, theirs + "/commpool"), 0);
  for (const std::string& unusable : {root_ + "/missing", root_, std::string("relative"), std::string()}) {
    EXPECT_EQ(chosen_by_another(unusable, fallback), 0) << unusable;
  }
  ASSERT_EQ(chown((theirs + "/commpool").c_str(), 0, 0), 0);
  EXPECT_EQ(chosen_by_another(theirs, fallback), 0) << "root was there first";
  std::filesystem::remove_all(theirs + "/commpool");
  ASSERT_EQ(chmod(theirs.c_str(), 0500), 0);
  EXPECT_EQ(chosen_by_another(theirs, fallback), 0) << "not writable";
  std::filesystem::remove_all(fallback);
}

TEST_F(ShareFolder, IsNotMadeInAnotherUsersRuntimeDirectory) {
  if (!MayBeAnotherUser()) GTEST_SKIP() << "this user may not become another one";
  ASSERT_EQ(chown(root_.c_str(), kAnotherUser, kAnotherUser), 0);
  const ShareListener listener = ShareListener::OpenIn("", root_).value();
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "it would lock that user out";
}

TEST_F(ShareFolder, IsTheOneThatTheProgramChose) {
  EXPECT_EQ(std::filesystem::path(ShareListener::OpenIn(folder_, root_ + "/run").value().path()).parent_path(),
            folder_);
  for (const std::string& wrong : {root_ + "/no/such/folder", std::string("/proc/commpool"), std::string("relative")}) {
    ExpectFailure(ShareListener::OpenIn(wrong, root_).status(), StatusCode::kFailedPrecondition, "COMMPOOL_SOCKETS");
  }
}

TEST_F(ShareFolder, WithATooLongNameIsRefused) {
  folder_ = root_ + "/" + std::string(100, 'x');
  EXPECT_FALSE(Refused().ok());
}

}  // namespace
}  // namespace commpool::internal
