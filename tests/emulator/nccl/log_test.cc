// The lines of the log by which programs see which registration a collective used.
#include <unistd.h>

#include <cstdlib>
#include <regex>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kLog = setenv("NCCL_DEBUG", "INFO", 1) + setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING,REG", 1) +
                                  setenv("NCCL_DEBUG_FILE", "nccl_log_test.%p", 1);

constexpr size_t kSmall = 8 << 10;
constexpr size_t kLarge = 8 << 20;

class Log : public EmulatedNccl {
 protected:
  void SetUp() override { before_ = Text().size(); }

  static std::string Text() { return Read(("nccl_log_test." + std::to_string(getpid())).c_str()); }

  // Whether a line that this test wrote matches the pattern after "[device] NCCL INFO ".
  bool Says(const std::string& pattern) const {
    const std::regex line("^[^ ]+:[0-9]+:[0-9]+ \\[[0-9]+\\] NCCL INFO " + pattern + "$", std::regex::multiline);
    const std::string text = Text().substr(before_);
    return std::regex_search(text, line);
  }

 private:
  size_t before_ = 0;
};

enum class Registration { kNone, kLocal, kWindow };

// An all-reduce out of place on 2 ranks, with both buffers in one registered range.
void AllReduceWith(Registration registration, size_t bytes, ncclRedOp_t operation = ncclSum,
                   MemoryKind kind = MemoryKind::kVirtual) {
  RunRanks(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 * bytes, kind);
    std::shared_ptr<void> registered;
    if (registration == Registration::kLocal) registered = ScopedHandle(rank, memory);
    if (registration == Registration::kWindow) registered = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(rank.AllReduce(memory.data(), memory.data() + bytes, bytes / sizeof(float), ncclFloat, operation),
                ncclSuccess);
    }
    rank.Synchronize();
  });
}

TEST_F(Log, NamesTheVersionAndTheRanks) {
  RunRanks(2, [](Rank&) {});
  EXPECT_TRUE(Says("NCCL version 2\\.28\\.9\\+cuda13\\.0"));
  EXPECT_TRUE(
      Says("ncclCommInitRank comm 0x[0-9a-f]+ rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId [0-9a-f]+ commId "
           "0x[0-9a-f]+ - Init COMPLETE"));
}

TEST_F(Log, NamesTheAlgorithmOfAnOrdinaryCollective) {
  AllReduceWith(Registration::kNone, kSmall);
  EXPECT_TRUE(Says("AllReduce: 8192 Bytes -> Algo RING proto LL channel\\{Lo\\.\\.Hi\\}=\\{0\\.\\.0\\}"));
  EXPECT_FALSE(Says(".*Symmetric.*"));
  EXPECT_FALSE(Says(".*IPC.*"));
}

TEST_F(Log, NamesTheSymmetricKernelOfAWindow) {
  AllReduceWith(Registration::kWindow, kSmall);
  EXPECT_TRUE(
      Says("AllReduce \\[Symmetric\\]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 "
           "nWorks 1"));
  AllReduceWith(Registration::kWindow, kLarge);
  EXPECT_TRUE(Says("AllReduce \\[Symmetric\\]: 8388608 Bytes -> Kernel AllReduce_RSxLD_AGxST .*"));
  EXPECT_FALSE(Says("AllReduce: .*"));
}

// Averages of floats have no symmetric kernel before 2.30.3; the window's local registration serves.
TEST_F(Log, AverageInAWindowRunsAnOrdinaryKernel) {
  AllReduceWith(Registration::kWindow, kLarge, ncclAvg);
  EXPECT_FALSE(Says(".*Symmetric.*"));
  EXPECT_TRUE(Says("AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE .*"));
  EXPECT_TRUE(Says("rank 0 - IPC register buffer .*"));
}

TEST_F(Log, NamesALocalRegistrationThatIsUsed) {
  AllReduceWith(Registration::kLocal, kLarge);
  EXPECT_TRUE(Says("register comm 0x[0-9a-f]+ buffer 0x[0-9a-f]+ size [0-9]+"));
  EXPECT_TRUE(
      Says("rank 1 - IPC registering buffer 0x[0-9a-f]+ size 8388608 \\(baseAddr 0x[0-9a-f]+ size [0-9]+\\) "
           "to peer 0"));
  EXPECT_TRUE(
      Says("rank 1 - IPC register buffer 0x[0-9a-f]+ size 8388608 \\(baseAddr 0x[0-9a-f]+ size [0-9]+\\) to "
           "peer 0 regAddr 0x[0-9a-f]+ offsetOut 8388608"));
  EXPECT_TRUE(
      Says("rank 1 - IPC reuse buffer 0x[0-9a-f]+ size 8388608 \\(baseAddr 0x[0-9a-f]+ size [0-9]+\\) to "
           "peer 0 regAddr 0x[0-9a-f]+"));
}

// The low-latency protocols copy through NCCL's own buffers.
TEST_F(Log, SmallMessagesUseNoLocalRegistration) {
  AllReduceWith(Registration::kLocal, kSmall);
  EXPECT_FALSE(Says(".*IPC.*"));
}

// NCCL 2.28.9, src/transport/p2p.cc: without a cuMem handle only the legacy path is left, which is off since 2.24.
TEST_F(Log, PlainMemoryIsRegisteredButNotUsed) {
  AllReduceWith(Registration::kLocal, kLarge, ncclSum, MemoryKind::kPlain);
  EXPECT_TRUE(Says("rank 0 failed to IPC register userbuff .* type POSIX_FD"));
  EXPECT_FALSE(Says(".* - IPC register buffer .*"));
}

}  // namespace
}  // namespace commpool::internal::testing
