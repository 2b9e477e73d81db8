// Which registration a collective used, by NCCL's log, and what `allreduce` makes of it. The lines are NCCL 2.28.9's,
// from two H200s; the emulated NCCL is held to the same in tests/emulator/nccl.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tools/cli/allreduce.h"
#include "tools/cli/nccl_log.h"
#include "tools/common/command.h"

namespace commpool::cli {
namespace {

constexpr const char* kRing =
    "host:1:2 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n";
constexpr const char* kSimple =
    "host:1:2 [0] NCCL INFO AllReduce: 2097152 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}\n";
constexpr const char* kSymmetric =
    "host:1:2 [0] NCCL INFO AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 3 nthreads 512 "
    "nWorks 1\n";
constexpr const char* kRegistered =
    "host:1:2 [1] NCCL INFO rank 1 - IPC register buffer 0x7f71 size 2097152 (baseAddr 0x7f70 size 134217728) to peer "
    "0 "
    "regAddr 0x7f77 offsetOut 2097152\n";
constexpr const char* kReused =
    "host:1:2 [1] NCCL INFO rank 1 - IPC reuse buffer 0x7f71 size 2097152 (baseAddr 0x7f70 size 134217728) to peer 0 "
    "regAddr 0x7f77\n";
constexpr const char* kRegisterCall = "host:1:2 [0] NCCL INFO register comm 0x55 buffer 0x7f78 size 134217728\n";
constexpr const char* kDeregistered =
    "host:1:2 [0] NCCL INFO rank 0 - IPC deregistered buffer 0x7f78 peer 1 ipc remote buffer 0x7f71\n";

TEST(NcclLog, AnOrdinaryKernelUsesNoRegistration) {
  EXPECT_EQ(ReadLines(kRing).used, UsedRegistration::kNone);
  EXPECT_FALSE(ReadLines(kRing).could_use_local);
}

TEST(NcclLog, ASymmetricKernelUsesTheWindow) { EXPECT_EQ(ReadLines(kSymmetric).used, UsedRegistration::kWindow); }

TEST(NcclLog, OnlySimpleCanUseALocalRegistration) { EXPECT_TRUE(ReadLines(kSimple).could_use_local); }

TEST(NcclLog, ARegisteredBufferIsUsedAtItsFirstAndAtLaterCollectives) {
  EXPECT_EQ(ReadLines(kRegistered).used, UsedRegistration::kLocal);
  EXPECT_EQ(ReadLines(kReused).used, UsedRegistration::kLocal);
}

TEST(NcclLog, RegisteringAndDeregisteringIsNotUsing) {
  EXPECT_EQ(ReadLines(std::string(kRegisterCall) + kDeregistered).used, UsedRegistration::kNone);
}

TEST(NcclLog, AWindowGoesBeforeALocalRegistration) {
  EXPECT_EQ(ReadLines(std::string(kReused) + kSymmetric).used, UsedRegistration::kWindow);
  EXPECT_EQ(ReadLines(std::string(kSymmetric) + kReused).used, UsedRegistration::kWindow);
}

// As NCCL opens it.
std::FILE* OpenAsNccl() { return std::fopen(std::getenv("NCCL_DEBUG_FILE"), "w"); }

void Write(std::FILE* file, const char* line) {
  std::fputs(line, file);
  std::fflush(file);
}

TEST(NcclLog, ReadsLinesSinceTheLastCall) {
  NcclLog log;
  std::FILE* const file = OpenAsNccl();
  ASSERT_NE(file, nullptr);
  Write(file, kSymmetric);
  EXPECT_EQ(log.Next().used, UsedRegistration::kWindow);
  EXPECT_EQ(log.Next().used, UsedRegistration::kNone);
  Write(file, kReused);
  EXPECT_EQ(log.Next().used, UsedRegistration::kLocal);
  std::fclose(file);
}

TEST(NcclLog, LeavesNoFileAlsoWhereTheProcessIsKilled) {
  std::string folder = ::testing::TempDir() + "nccl_log_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("TMPDIR", folder.c_str(), 1);
    const NcclLog log;
    if (std::FILE* const file = OpenAsNccl()) Write(file, kRing);
    std::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(NcclLog, HasNoNameThatAnotherUserCouldGuess) {
  const NcclLog log;
  const std::string target = std::filesystem::read_symlink(std::getenv("NCCL_DEBUG_FILE")).string();
  EXPECT_EQ(target.rfind("/memfd:", 0), 0U) << target;
}

AllReduceRow Row(UsedRegistration used, bool could_use_local = true, long wrong = 0) {
  return {.wrong = wrong, .used = used, .could_use_local = could_use_local};
}

AllReduceOptions Asked(UsedRegistration asked, Backing backing = Backing::kVmm) {
  return {.backing = backing, .asked = asked, .sizes = {}};
}

TEST(Judge, AWrongElementGoesBeforeEverything) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), {Row(UsedRegistration::kNone, true, 1)}), kWrongResult);
}

TEST(Judge, EveryRowMustUseTheWindow) {
  const std::vector<AllReduceRow> rows = {Row(UsedRegistration::kWindow), Row(UsedRegistration::kNone)};
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), rows), kNotAsAsked);
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), {Row(UsedRegistration::kWindow)}), kSuccess);
}

TEST(Judge, OneRowThatUsesTheLocalRegistrationIsEnough) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), {Row(UsedRegistration::kNone), Row(UsedRegistration::kLocal)}),
            kSuccess);
}

TEST(Judge, LocalUnusedWhereItCouldBeUsedIsNotAsAsked) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), {Row(UsedRegistration::kNone, true)}), kNotAsAsked);
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), {Row(UsedRegistration::kNone, false)}), kSuccess);
}

TEST(Judge, NcclCannotUseALocalRegistrationOfCudaMallocMemory) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal, Backing::kCuda), {Row(UsedRegistration::kNone)}), kSuccess);
}

}  // namespace
}  // namespace commpool::cli
