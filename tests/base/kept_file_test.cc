// Files with what is kept: written once, read where nobody has changed them, gone with their object.
#include "src/base/kept_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/bytes.h"

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

TEST(KeptFile, NeedsRoomOnTheDisk) {
  const Directory directory;
  ExpectRefused(KeptFile::Make(directory.path(), uint64_t{1} << 60).status(), "has no room for",
                StatusCode::kOutOfMemory);
  EXPECT_EQ(directory.files(), 0u);
}

}  // namespace
}  // namespace commpool::internal
