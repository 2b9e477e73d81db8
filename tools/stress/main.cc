// commpool_stress: for those who build commpool. It needs no GPU, and it is not installed.
#include "commpool/commpool.h"
#include "tools/common/program.h"
#include "tools/stress/commands.h"

namespace {

void AddCommands(commpool::cli::Command app) {
  commpool::cli::AddStressOrder(app);
  commpool::cli::AddStressRegistration(app);
  commpool::cli::AddStressRanks(app);
  commpool::cli::AddStressHost(app);
}

}  // namespace

int main(int argc, char** argv) {
  return commpool::cli::RunProgram(
      {"commpool_stress", "commpool_stress: use pools at random and check everything that can be",
       "commpool_stress " + commpool::cli::VersionText(COMMPOOL_VERSION),
       "Examples:\n"
       "  commpool_stress order --steps 1000000\n"
       "  commpool_stress registration --schedules 10000\n"
       "  commpool_stress ranks --schedules 2000\n"
       "  commpool_stress host --sample 100",
       AddCommands},
      {argv + 1, argv + argc});
}
