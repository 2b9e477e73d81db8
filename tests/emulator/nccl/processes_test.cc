// Ranks as processes, as under mpirun.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

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

constexpr int kRanks = 4;

// Starts the ranks with a variable of their own, and returns their exit codes.
std::vector<int> ExitCodes(const char* variable, const std::function<int(int rank)>& value) {
  ncclUniqueId id;
  EXPECT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  const std::string program = ProgramPath();
  const std::string ranks = std::to_string(kRanks);
  const std::string text = HexOf(id);
  std::vector<pid_t> children;
  for (int number = 0; number < kRanks; ++number) {
    const std::string rank = std::to_string(number);
    setenv(variable, std::to_string(value(number)).c_str(), 1);
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      execl(program.c_str(), program.c_str(), rank.c_str(), ranks.c_str(), text.c_str(), nullptr);
      _exit(127);
    }
    children.push_back(child);
  }
  unsetenv(variable);
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return codes;
}

TEST_F(Processes, AllReduceTogether) {
  EXPECT_EQ(ExitCodes("OF_NO_MEANING", [](int rank) { return rank; }), std::vector<int>(kRanks, 0));
}

// NCCL 2.28.9, src/misc/utils.cc: the variable stands for the host's name and boot.
TEST_F(Processes, AreOnTheHostsThatTheirVariableNames) {
  EXPECT_EQ(ExitCodes("NCCL_HOSTID", [](int) { return 7; }), std::vector<int>(kRanks, 0));
  EXPECT_EQ(ExitCodes("NCCL_HOSTID", [](int rank) { return rank / 2; }), std::vector<int>(kRanks, 10));
}

}  // namespace
}  // namespace commpool::internal::testing
