// Files with what is kept: written once, read where nobody has changed them, gone with their object.
#include "src/library/base/kept_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"

namespace {
int interruptions = 0;   // that signals still cause
bool read_only = false;  // the disk has become
}  // namespace

// Instead of the C library's.
extern "C" int posix_fallocate(int file, off_t offset, off_t bytes) {
  if (interruptions > 0) return --interruptions, EINTR;
  return fallocate(file, 0, offset, bytes) == 0 ? 0 : errno;
}

extern "C" int unlink(const char* path) noexcept {
  if (!read_only) return unlinkat(AT_FDCWD, path, 0);
  errno = EROFS;
  return -1;
}

namespace commpool::internal {
namespace {

constexpr uint64_t kBytes = 4 * KeptFile::kAlignment;

// A directory on the disk that tests write to.
class Directory {
 public:
  Directory() {
    std::string pattern = ::testing::TempDir() + "/kept-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::string path_;
};

// Memory as a file wants it.
struct Page {
  alignas(KeptFile::kAlignment) std::byte bytes[kBytes];
  explicit Page(int value) { std::memset(bytes, value, kBytes); }
};

KeptFile Sealed(const Directory& directory, const Page& page) {
  KeptFile file = KeptFile::Make(directory.path(), kBytes).value();
  EXPECT_TRUE(file.Write(0, page.bytes, kBytes).ok());
  EXPECT_TRUE(file.Seal().ok());
  return file;
}

void ExpectRefused(const Status& status, const std::string& part, StatusCode code = StatusCode::kFailedPrecondition) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

Status ReadAll(KeptFile& file) {
  Page page(0);
  return file.Read(0, page.bytes, kBytes);
}

TEST(KeptFile, GivesBackWhatWasWritten) {
  const Directory directory;
  const Page written(7);
  KeptFile file = Sealed(directory, written);
  Page read(0);
  for (uint64_t offset = 0; offset != kBytes; offset += KeptFile::kAlignment) {
    EXPECT_TRUE(file.Read(offset, read.bytes + offset, KeptFile::kAlignment).ok());
  }
  EXPECT_EQ(std::memcmp(read.bytes, written.bytes, kBytes), 0);
  EXPECT_EQ(std::memcmp(file.Map().value(), written.bytes, kBytes), 0);
}

TEST(KeptFile, GoesWithItsObject) {
  const Directory directory;
  {
    KeptFile file = Sealed(directory, Page(1));
    EXPECT_EQ(directory.files(), 1u);
    const KeptFile moved = std::move(file);
    EXPECT_EQ(directory.files(), 1u);
  }
  EXPECT_EQ(directory.files(), 0u);
}

// Nobody may come for the rest.
TEST(KeptFile, HoldsNoDescriptorBetweenReads) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  const auto open = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = open();
  Page page(0);
  EXPECT_TRUE(file.Read(0, page.bytes, KeptFile::kAlignment).ok());
  EXPECT_EQ(open(), before);
}

TEST(KeptFile, IsRefusedOnceItIsGone) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  unlink(file.path().c_str());
  ExpectRefused(ReadAll(file), "is gone");
  ExpectRefused(file.Map().status(), "is gone");
}

TEST(KeptFile, IsRefusedOnceItIsShort) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  ASSERT_EQ(truncate(file.path().c_str(), KeptFile::kAlignment), 0);
  ExpectRefused(ReadAll(file), "has 4 KiB of 16 KiB");
}

TEST(KeptFile, IsRefusedOnceItWasChangedHoweverSoon) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  std::fstream(file.path(), std::ios::in | std::ios::out | std::ios::binary).put('x');
  ExpectRefused(ReadAll(file), "was changed");
}

TEST(KeptFile, IsRefusedOnceItWasChangedBetweenTwoReads) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  Page read(0);
  EXPECT_TRUE(file.Read(0, read.bytes, KeptFile::kAlignment).ok());
  std::fstream(file.path(), std::ios::in | std::ios::out | std::ios::binary).put('x');
  ExpectRefused(file.Read(KeptFile::kAlignment, read.bytes, KeptFile::kAlignment), "was changed");
  unlink(file.path().c_str());
  ExpectRefused(file.Read(KeptFile::kAlignment, read.bytes, KeptFile::kAlignment), "is gone");
}

TEST(KeptFile, IsRefusedWhereAnotherOneHasItsName) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  const std::string other = file.path() + ".other";
  std::filesystem::copy(file.path(), other);
  std::filesystem::rename(other, file.path());
  ExpectRefused(ReadAll(file), "another one has its name");
}

TEST(KeptFile, NeedsADirectoryOnADisk) {
  ExpectRefused(KeptFile::Make("/nowhere/at/all", kBytes).status(), "/nowhere/at/all", StatusCode::kInvalidArgument);
  ExpectRefused(KeptFile::Make("/dev/shm", kBytes).status(), "lies in the host's memory", StatusCode::kInvalidArgument);
}

TEST(KeptFile, GoesWithAProcessThatExits) {
  const Directory directory;
  const auto exit_with_files = [&] {
    // Volatile, so that a leak checker finds them at the exit.
    [[maybe_unused]] static const KeptFile* volatile kept[2];
    kept[0] = new KeptFile(Sealed(directory, Page(1)));
    { const KeptFile gone = Sealed(directory, Page(2)); }
    kept[1] = new KeptFile(Sealed(directory, Page(3)));
    std::exit(directory.files() == 2 ? 0 : 1);
  };
  const KeptFile own = Sealed(directory, Page(4));
  unlink(own.path().c_str());
  EXPECT_EXIT(exit_with_files(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(directory.files(), 0u);
}

TEST(KeptFile, StaysWhereAForkedChildExits) {
  const Directory directory;
  KeptFile file = Sealed(directory, Page(1));
  EXPECT_EXIT(std::exit(0), ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(ReadAll(file).ok());
}

TEST(KeptFile, IsMadeDespiteInterruptions) {
  const Directory directory;
  interruptions = 3;
  EXPECT_TRUE(KeptFile::Make(directory.path(), kBytes).ok());
}

TEST(KeptFile, NeedsAFileDescriptor) {
  const Directory directory;
  KeptFile sealed = Sealed(directory, Page(1));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status made = KeptFile::Make(directory.path(), kBytes).status();
  const Status read = ReadAll(sealed);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ExpectRefused(made, "Too many open files", StatusCode::kOutOfMemory);
  ExpectRefused(read, "Too many open files", StatusCode::kOutOfMemory);
  EXPECT_TRUE(ReadAll(sealed).ok());
}

TEST(KeptFile, ThatCannotBeRemovedIsNamed) {
  const Directory directory;
  std::string path;
  ::testing::internal::CaptureStderr();
  {
    const KeptFile file = Sealed(directory, Page(1));
    path = file.path();
    read_only = true;
  }
  read_only = false;
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the file \"" + path + "\", which nobody needs any more, stays: Read-only"), std::string::npos)
      << said;
}

TEST(KeptFile, OfADirectoryWithAnyNameIsOneLineOfAnError) {
  const std::string said = KeptFile::Make("/no\n\x1b[31m", kBytes).status().message();
  EXPECT_NE(said.find("/no\\n\\x1b[31m"), std::string::npos) << said;
}

// Past a limit of file sizes, which would end the program by a signal.
TEST(KeptFile, PastALimitOfSizesIsRefused) {
  const Directory directory;
  KeptFile file = KeptFile::Make(directory.path(), kBytes).value();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {KeptFile::kAlignment, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Page page(1);
  const Status written = file.Write(KeptFile::kAlignment, page.bytes, KeptFile::kAlignment);
  const Status made = KeptFile::Make(directory.path(), kBytes).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectRefused(written, "File too large", StatusCode::kOutOfMemory);
  ExpectRefused(made, "File too large", StatusCode::kOutOfMemory);
  EXPECT_EQ(directory.files(), 1u);
}

TEST(KeptFile, NeedsRoomOnTheDisk) {
  const Directory directory;
  ExpectRefused(KeptFile::Make(directory.path(), uint64_t{1} << 60).status(), "has no room for",
                StatusCode::kOutOfMemory);
  EXPECT_EQ(directory.files(), 0u);
}

}  // namespace
}  // namespace commpool::internal
