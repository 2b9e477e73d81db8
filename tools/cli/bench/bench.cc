#include "tools/cli/bench/bench.h"

namespace commpool::cli {

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measurements, each beside a peer or a limit in the same run");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  commpool bench hot --sizes 512,1M\n"
      "  mpirun -np 4 commpool bench agreement\n"
      "  commpool bench make --help    (each has an example of its own)");
  AddBenchMake(*bench, exit_code);
  AddBenchHot(*bench, exit_code);
  AddBenchLookup(*bench, exit_code);
  AddBenchThreshold(*bench, exit_code);
  AddBenchRegistration(*bench, exit_code);
  AddBenchAgreement(*bench, exit_code);
}

}  // namespace commpool::cli
