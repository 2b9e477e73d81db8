// commpool allreduce: the main job under mpirun, as a table that users of nccl-tests know.
#include "tools/cli/allreduce.h"

#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "src/library/base/try.h"
#include "tools/cli/backing_names.h"
#include "tools/cli/commands.h"
#include "tools/cli/sizes.h"

namespace commpool::cli {

namespace {

struct Arguments {
  AllReduceOptions run;
  std::string bytes = "8K:64M";
  Comparison compare = Comparison::kNone;
  OutputOptions output;
};

const std::map<std::string, Location> kLocations = {{"device", Location::kDevice}, {"host-numa", Location::kHostNuma}};
const std::map<std::string, UsedRegistration> kRegistrations = {
    {"none", UsedRegistration::kNone}, {"local", UsedRegistration::kLocal}, {"window", UsedRegistration::kWindow}};

const std::map<std::string, Comparison> kComparisons = {
    {"none", Comparison::kNone}, {"by-hand", Comparison::kByHand}, {"scopes", Comparison::kScopes}};

nlohmann::json ToJson(const Ranks& ranks, const internal::Driver& driver, const Arguments& arguments,
                      const AllReduceReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const AllReduceRow& row : report.rows) {
    rows.push_back({{"bytes", row.bytes},
                    {"time_us", row.time_us},
                    {"algbw_gbps", row.algbw_gbps},
                    {"busbw_gbps", row.busbw_gbps},
                    {"wrong", row.wrong < 0 ? nlohmann::json() : nlohmann::json(row.wrong)},
                    {"registration_used", Name(row.used)}});
  }
  return {{"ranks", ranks.count()},
          {"driver", driver.description},
          {"backing", NameOf(BackingNames(), arguments.run.backing)},
          {"location", NameOf(kLocations, arguments.run.location)},
          {"registration_asked", Name(arguments.run.asked)},
          {"rows", rows}};
}

void PrintTable(const Ranks& ranks, const internal::Driver& driver, const Arguments& arguments,
                const AllReduceReport& report) {
  std::printf("# %s\n# %s, %s pool at %s, registration asked for: %s\n", driver.description.c_str(),
              Counted(ranks.count(), "rank").c_str(), NameOf(BackingNames(), arguments.run.backing).c_str(),
              NameOf(kLocations, arguments.run.location).c_str(), Name(arguments.run.asked));
  if (driver.kind == internal::DriverChoice::kEmulated)
    std::printf("# emulated: times are a model's, results are computed\n");
  std::printf("%12s %12s %8s %12s %14s %14s %8s %12s\n", "bytes", "count", "type", "time (us)", "algbw (GB/s)",
              "busbw (GB/s)", "wrong", "registration");
  for (const AllReduceRow& row : report.rows) {
    const std::string wrong = row.wrong < 0 ? "-" : std::to_string(row.wrong);
    std::printf("%12llu %12llu %8s %12.1f %14.2f %14.2f %8s %12s\n", static_cast<unsigned long long>(row.bytes),
                static_cast<unsigned long long>(row.bytes / sizeof(float)), "float", row.time_us, row.algbw_gbps,
                row.busbw_gbps, wrong.c_str(), Name(row.used));
  }
}

Result<int> Run(const Ranks& ranks, Arguments arguments) {
  arguments.run.sizes = COMMPOOL_TRY(ParseSizes(arguments.bytes));
  NcclLog log;
  const std::unique_ptr<RankDevice> device = COMMPOOL_TRY(OpenRankDevice(ranks));
  const internal::Driver& driver = *device->driver;
  if (arguments.compare != Comparison::kNone) {
    const Result<int> compared = RunComparison(ranks, *device, arguments.run, arguments.compare, arguments.output);
    return compared.ok() ? compared : ranks.Told(compared.status());
  }
  const AllReduceReport report = RunAllReduce(ranks, *device, arguments.run, log);
  if (!report.refused.ok()) return ranks.Told(Status(StatusCode::kNotSupported, report.refused.message()));
  if (!report.failed.ok()) return ranks.Told(Status(StatusCode::kInternal, report.failed.message()));
  Result<int> reported = kSuccess;
  if (ranks.first()) {
    reported = Report(arguments.output, driver.description, ToJson(ranks, driver, arguments, report),
                      [&] { PrintTable(ranks, driver, arguments, report); });
  }
  const std::string unused = WhyUnused(arguments.run, report.rows, ranks.count());
  if (ranks.first() && !unused.empty()) std::cerr << "commpool allreduce: " + unused + '\n';
  const int judged = Judge(arguments.run, report.rows);
  return judged == kSuccess ? reported : judged;
}

}  // namespace

void AddAllReduce(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("allreduce", "Pool, register, reserve, scope, all-reduce: the main job");
  command.Footer(
      "Run it under mpirun, one rank a GPU, or alone. The column registration is what NCCL's own log says it used.\n"
      "Exit codes: 1 a wrong element; 2 asked for window and some row did not use it, or local and no row that could "
      "did;\n"
      "3 the combination is refused, with the reason; 4 an error.\n"
      "Examples:\n"
      "  mpirun -np 4 commpool allreduce --register window --check\n"
      "  mpirun -np 2 commpool allreduce --backing nccl --register local --bytes 1M:1G --json\n"
      "  commpool allreduce --location host-numa --bytes 1M\n"
      "  mpirun -np 4 commpool allreduce --register window --compare by-hand");
  AddChoice(command, "--backing", arguments->run.backing, BackingNames(), "What the pool is made of");
  AddChoice(command, "--location", arguments->run.location, kLocations, "Where its memory is");
  AddChoice(command, "--register", arguments->run.asked, kRegistrations,
            "With the communicator; window makes a symmetric pool");
  command.AddOption("--bytes", arguments->bytes, "LEAST:MOST, doubled from row to row")
      .Checked(WhyNoSizes)
      .ShowPreset();
  command
      .AddOption("--iterations", arguments->run.iterations, "Of each row (default: 200 to 1 MiB, then 40; 2 emulated)")
      .Between(1, 1000000);
  command.AddFlag("--check", arguments->run.check, "Compare every element with the right sum");
  AddChoice(command, "--compare", arguments->compare, kComparisons,
            "by-hand: beside buffers made and registered one by one; scopes: those that scopes choose by size as "
            "advise says, beside the best kind of each size");
  AddOutputOptions(command, arguments->output);
  command.Do(WithRanks([arguments](const Ranks& ranks) { return Run(ranks, *arguments); }));
}

}  // namespace commpool::cli
