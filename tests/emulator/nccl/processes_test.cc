// Ranks as processes, as under mpirun.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Processes : public EmulatedNccl {};

std::string HexOf(const ncclUniqueId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : id.internal) {
    text += kDigits[(byte >> 4) & 15];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string ProgramPath() {
  const char* folder = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  const std::string root = folder != nullptr ? std::string(folder) + "/" + workspace + "/" : "./";
  return root + "tests/emulator/nccl/rank_program";
}

TEST_F(Processes, AllReduceTogether) {
  constexpr int kRanks = 4;
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  const std::string program = ProgramPath();
  const std::string ranks = std::to_string(kRanks);
  const std::string text = HexOf(id);
  std::vector<pid_t> children;
  for (int number = 0; number < kRanks; ++number) {
    const std::string rank = std::to_string(number);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      execl(program.c_str(), program.c_str(), rank.c_str(), ranks.c_str(), text.c_str(), nullptr);
      _exit(127);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
