#include "tools/cli/bench/bench.h"

#include "tools/cli/commands.h"

namespace commpool::cli {

void AddBench(Command app) {
  Command bench = app.Add("bench", "Measurements, each beside a peer or a limit in the same run");
  bench.NeedSubcommand();
  bench.Footer(
      "Examples:\n"
      "  commpool bench hot --sizes 512,1M\n"
      "  mpirun -np 4 commpool bench agreement\n"
      "  commpool bench hot --help    (each has an example of its own)");
  AddBenchGrowth(bench);
  AddBenchHot(bench);
  AddBenchMemory(bench);
  AddBenchSleep(bench);
  AddBenchRegistration(bench);
  AddBenchAgreement(bench);
}

}  // namespace commpool::cli
