// Files with what is kept: written once, read where nobody has changed them, gone with their object.
#include "src/library/base/kept_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/library/base/bytes.h"
#include "tests/base/expect_status.h"

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

class KeptFileTest : public ::testing::Test {
 protected:
  KeptFile Sealed(const Page& page) {
    KeptFile file = KeptFile::Make(directory_.path(), kBytes).value();
    EXPECT_TRUE(file.Write(0, page.bytes, kBytes).ok());
    EXPECT_TRUE(file.Seal().ok());
    return file;
  }
  static Status ReadAll(KeptFile& file) {
    Page page(0);
    return file.Read(0, page.bytes, kBytes);
  }

  const Directory directory_;
};

// A file that was sealed.
class SealedFile : public KeptFileTest {
 protected:
  Status ReadAll() { return KeptFileTest::ReadAll(file_); }
  void Change() { std::fstream(file_.path(), std::ios::in | std::ios::out | std::ios::binary).put('x'); }

  KeptFile file_ = Sealed(Page(1));
};

TEST_F(KeptFileTest, GivesBackWhatWasWritten) {
  const Page written(7);
  KeptFile file = Sealed(written);
  Page read(0);
  for (uint64_t offset = 0; offset != kBytes; offset += KeptFile::kAlignment) {
    EXPECT_TRUE(file.Read(offset, read.bytes + offset, KeptFile::kAlignment).ok());
  }
  EXPECT_EQ(std::memcmp(read.bytes, written.bytes, kBytes), 0);
  EXPECT_EQ(std::memcmp(file.Map().value(), written.bytes, kBytes), 0);
}

TEST_F(KeptFileTest, GoesWithItsObject) {
  {
    KeptFile file = Sealed(Page(1));
    EXPECT_EQ(directory_.files(), 1u);
    const KeptFile moved = std::move(file);
    EXPECT_EQ(directory_.files(), 1u);
  }
  EXPECT_EQ(directory_.files(), 0u);
}

// Nobody may come for the rest.
TEST_F(SealedFile, HoldsNoDescriptorBetweenReads) {
  const auto open = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = open();
  Page page(0);
  EXPECT_TRUE(file_.Read(0, page.bytes, KeptFile::kAlignment).ok());
  EXPECT_EQ(open(), before);
}

TEST_F(SealedFile, IsRefusedOnceItIsGone) {
  unlink(file_.path().c_str());
  ExpectFailure(ReadAll(), StatusCode::kFailedPrecondition, "is gone");
  ExpectFailure(file_.Map().status(), StatusCode::kFailedPrecondition, "is gone");
}

TEST_F(SealedFile, IsRefusedOnceItIsShort) {
  ASSERT_EQ(truncate(file_.path().c_str(), KeptFile::kAlignment), 0);
  ExpectFailure(ReadAll(), StatusCode::kFailedPrecondition, "has 4 KiB of 16 KiB");
}

TEST_F(SealedFile, IsRefusedOnceItWasChangedHoweverSoon) {
  Change();
  ExpectFailure(ReadAll(), StatusCode::kFailedPrecondition, "was changed");
}

TEST_F(SealedFile, IsRefusedOnceItWasChangedBetweenTwoReads) {
  Page read(0);
  EXPECT_TRUE(file_.Read(0, read.bytes, KeptFile::kAlignment).ok());
  Change();
  ExpectFailure(file_.Read(KeptFile::kAlignment, read.bytes, KeptFile::kAlignment), StatusCode::kFailedPrecondition,
                "was changed");
  unlink(file_.path().c_str());
  ExpectFailure(file_.Read(KeptFile::kAlignment, read.bytes, KeptFile::kAlignment), StatusCode::kFailedPrecondition,
                "is gone");
}

TEST_F(SealedFile, IsRefusedWhereAnotherOneHasItsName) {
  const std::string other = file_.path() + ".other";
  std::filesystem::copy(file_.path(), other);
  std::filesystem::rename(other, file_.path());
  ExpectFailure(ReadAll(), StatusCode::kFailedPrecondition, "another one has its name");
}

TEST_F(KeptFileTest, NeedsADirectoryOnADisk) {
  ExpectFailure(KeptFile::Make("/nowhere/at/all", kBytes).status(), StatusCode::kInvalidArgument, "/nowhere/at/all");
  ExpectFailure(KeptFile::Make("/dev/shm", kBytes).status(), StatusCode::kInvalidArgument, "lies in the host's memory");
}

TEST_F(KeptFileTest, GoesWithAProcessThatExits) {
  const auto exit_with_files = [&] {
    // Volatile, so that a leak checker finds them at the exit.
    [[maybe_unused]] static const KeptFile* volatile kept[2];
    kept[0] = new KeptFile(Sealed(Page(1)));
    { const KeptFile gone = Sealed(Page(2)); }
    kept[1] = new KeptFile(Sealed(Page(3)));
    std::exit(directory_.files() == 2 ? 0 : 1);
  };
  const KeptFile own = Sealed(Page(4));
  unlink(own.path().c_str());
  EXPECT_EXIT(exit_with_files(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(directory_.files(), 0u);
}

TEST_F(SealedFile, StaysWhereAForkedChildExits) {
  EXPECT_EXIT(std::exit(0), ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(KeptFileTest, IsMadeDespiteInterruptions) {
  interruptions = 3;
  EXPECT_TRUE(KeptFile::Make(directory_.path(), kBytes).ok());
}

TEST_F(SealedFile, NeedsAFileDescriptor) {
  const std::string directory = directory_.path();
  KeptFile& file = file_;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  // Without `this`: the address sanitizer looks at a fixture by descriptors.
  const Status made = KeptFile::Make(directory, kBytes).status();
  const Status read = KeptFileTest::ReadAll(file);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ExpectFailure(made, StatusCode::kOutOfMemory, "Too many open files");
  ExpectFailure(read, StatusCode::kOutOfMemory, "Too many open files");
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(KeptFileTest, ThatCannotBeRemovedIsNamed) {
  std::string path;
  ::testing::internal::CaptureStderr();
  {
    const KeptFile file = Sealed(Page(1));
    path = file.path();
    read_only = true;
  }
  read_only = false;
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the file \"" + path + "\", which nobody needs any more, stays: Read-only"), std::string::npos)
      << said;
}

TEST_F(KeptFileTest, OfADirectoryWithAnyNameIsOneLineOfAnError) {
  ExpectMessage(KeptFile::Make("/no\n\x1b[31m", kBytes).status(), "/no\\n\\x1b[31m");
}

// Past a limit of file sizes, which would end the program by a signal.
TEST_F(KeptFileTest, PastALimitOfSizesIsRefused) {
  KeptFile file = KeptFile::Make(directory_.path(), kBytes).value();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {KeptFile::kAlignment, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Page page(1);
  const Status written = file.Write(KeptFile::kAlignment, page.bytes, KeptFile::kAlignment);
  const Status made = KeptFile::Make(directory_.path(), kBytes).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectFailure(written, StatusCode::kOutOfMemory, "File too large");
  ExpectFailure(made, StatusCode::kOutOfMemory, "File too large");
  EXPECT_EQ(directory_.files(), 1u);
}

TEST_F(KeptFileTest, NeedsRoomOnTheDisk) {
  ExpectFailure(KeptFile::Make(directory_.path(), uint64_t{1} << 60).status(), StatusCode::kOutOfMemory,
                "has no room for");
  EXPECT_EQ(directory_.files(), 0u);
}

}  // namespace
}  // namespace commpool::internal
