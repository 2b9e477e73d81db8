// commpool_stress sweep: what each constant of expandable pools is worth. Pools and devices are models: it needs no
// GPU.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/sweep/sweep.h"
#include "tools/traces/trace_options.h"

namespace commpool::cli {

namespace {

struct Arguments {
  TraceChoice traces;
  OutputOptions output;
};

Result<int> Run(const Arguments& arguments) {
  const std::vector<Trace> traces = COMMPOOL_TRY(ReadTraces(arguments.traces));
  std::optional<Progress> progress(std::in_place, "sweep", 100);
  const Sweep sweep = RunSweep(traces, [&](size_t done, size_t all) { progress->Show(done * 100 / all, "percent"); });
  progress.reset();
  nlohmann::json results = ToJson(sweep);
  results["streams"] = arguments.traces.streams;
  return Report(arguments.output, "modelled", results, [&] {
    std::cout
        << "# modelled pools on modelled devices; in use is peak requested / peak reserved; waits of the host and "
           "on the device are of 1,000 events\n# longer: the critical path than without an allocator; cost: "
           "unused memory and that, in percent\n"
        << std::flush;
    PrintSweep(sweep);
  });
}

}  // namespace

void AddSweep(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("sweep", "What each constant of expandable pools is worth, in modelled time");
  command.Footer(
      "The constants are cross-validated: each trace has the setting that costs least on all others.\n"
      "Examples:\n"
      "  commpool_stress sweep tests/data/traces");
  AddTraceOptions(command, arguments->traces);
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
