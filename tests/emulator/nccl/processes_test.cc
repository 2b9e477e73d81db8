// Ranks as processes, as under mpirun.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Processes : public EmulatedNccl {};

constexpr int kRanks = 4;

// Starts the ranks with a variable of their own, and returns their exit codes.
std::vector<int> ExitCodes(const char* variable, const std::function<int(int rank)>& value) {
  const char* const program = "tests/emulator/nccl/rank_program";
  const std::string ranks = std::to_string(kRanks);
  const std::string id_file = "rank_program_id." + std::to_string(getpid());
  const ncclUniqueId id = NewId();
  std::ofstream(id_file, std::ios::binary).write(id.internal, sizeof id.internal);
  std::vector<pid_t> children;
  for (int number = 0; number < kRanks; ++number) {
    const std::string rank = std::to_string(number);
    setenv(variable, std::to_string(value(number)).c_str(), 1);
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      execl(program, program, rank.c_str(), ranks.c_str(), id_file.c_str(), nullptr);
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
