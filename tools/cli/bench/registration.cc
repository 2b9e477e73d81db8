// commpool bench registration: tensors registered on two communicators, in a pool and one by one.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "commpool/pool.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/nccl_meter.h"
#include "tools/cli/bench/registration_steps.h"
#include "tools/cli/ranks.h"
#include "tools/cli/sizes.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

constexpr int kRoundsInTurn = 15;

struct Arguments {
  uint64_t tensors = 100;
  std::string bytes = "256K";
  int steps = 3;
  OutputOptions output;
};

// One way to make the tensors, and the cost of each phase.
struct Way {
  const char* name = "";
  uint64_t registrations = 0;
  Cost setup = {};
  Cost step = {};  // the most expensive step: all tensors go and are made again
};

class Bench {
 public:
  Bench(const Ranks& ranks, const RankDevice& device, ncclComm_t second, uint64_t tensors, uint64_t bytes)
      : ranks_(ranks), device_(device), second_(second), tensors_(tensors), bytes_(bytes), meter_(*device.driver) {}

  Result<Way> WithPool(int steps) {
    Progress progress("bench registration: step", static_cast<uint64_t>(steps), shown_);
    Pool pool = COMMPOOL_TRY(Pool::create({.device = device_.device, .symmetric_across = device_.communicator}));
    const auto set_up = [&] {
      COMMPOOL_TRY(pool.register_with(second_));
      return pool.reserve(tensors_ * internal::RoundUp(bytes_, 512));
    };
    Way way{.name = "pool"};
    Result<Cost> cost = Measure(ranks_, meter_, set_up);
    if (!cost.ok()) return cost.status();
    way.setup = *cost;
    for (int step = 0; step < steps; ++step) {
      progress.Show(static_cast<uint64_t>(step), "from the pool");
      cost = Measure(ranks_, meter_, [&] { return StepOf(pool); });
      if (!cost.ok()) return cost.status();
      if (step == 0 || cost->microseconds > way.step.microseconds) way.step = *cost;
    }
    const Statistics statistics = COMMPOOL_TRY(pool.stats());
    way.registrations = statistics.registered_segments;
    COMMPOOL_TRY(pool.deregister(second_));
    COMMPOOL_TRY(pool.close());
    return way;
  }

  // New memory must be registered again, so set-up and step are the same work.
  Result<Way> OneByOne() {
    Way way{.name = "one by one", .registrations = 2 * tensors_};
    Progress progress("bench registration: step", 2, shown_);
    progress.Show(0, "one by one");
    Result<Cost> cost = Measure(ranks_, meter_, [&] { return Register(); });
    if (!cost.ok()) return cost.status();
    way.setup = *cost;
    progress.Show(1, "one by one");
    cost = Measure(ranks_, meter_, [&] {
      COMMPOOL_TRY(Deregister());
      return Register();
    });
    if (!cost.ok()) return cost.status();
    way.step = *cost;
    COMMPOOL_TRY(Deregister());
    return way;
  }

 private:
  struct Tensor {
    void* data = nullptr;
    ncclWindow_t windows[2] = {};
  };

  Status StepOf(Pool& pool) {
    std::vector<Buffer> buffers;
    for (uint64_t tensor = 0; tensor < tensors_; ++tensor) {
      Buffer buffer = COMMPOOL_TRY(pool.allocate(bytes_, device_.stream));
      buffers.push_back(std::move(buffer));
    }
    buffers.clear();
    return pool.reclaim().status();
  }

  Status Register() {
    const internal::NcclLibrary& nccl = device_.driver->nccl;
    const uint64_t whole = internal::RoundUp(bytes_, 2 * internal::kMiB);
    for (uint64_t number = 0; number < tensors_; ++number) {
      Tensor& tensor = made_.emplace_back();
      Status status = Check(nccl.ncclMemAlloc(&tensor.data, whole), "ncclMemAlloc");
      for (size_t index = 0; index < 2 && status.ok(); ++index) {
        status = Check(nccl.ncclCommWindowRegister(Communicator(index), tensor.data, whole, &tensor.windows[index],
                                                   NCCL_WIN_COLL_SYMMETRIC),
                       "ncclCommWindowRegister");
      }
      if (!status.ok()) return status;
    }
    return Status();
  }

  Status Deregister() {
    const internal::NcclLibrary& nccl = device_.driver->nccl;
    for (const Tensor& tensor : made_) {
      Status status;
      for (size_t index = 0; index < 2 && status.ok(); ++index) {
        if (tensor.windows[index] == nullptr) continue;
        status = Check(nccl.ncclCommWindowDeregister(Communicator(index), tensor.windows[index]),
                       "ncclCommWindowDeregister");
      }
      if (status.ok()) status = Check(nccl.ncclMemFree(tensor.data), "ncclMemFree");
      if (!status.ok()) return status;
    }
    made_.clear();
    return Status();
  }

  ncclComm_t Communicator(size_t index) const { return index == 0 ? device_.communicator : second_; }
  Status Check(ncclResult_t result, const char* call) const {
    return internal::CheckNccl(*device_.driver, result, {.call = call, .device = device_.device, .bytes = bytes_});
  }

  const Ranks& ranks_;
  const Shown shown_ = ranks_.first() ? Shown::kYes : Shown::kNo;
  const RankDevice& device_;
  const ncclComm_t second_;
  const uint64_t tensors_;
  const uint64_t bytes_;
  const NcclMeter meter_;
  std::vector<Tensor> made_;
};

void Print(const Way& way) {
  const auto text = [](const Cost& cost) { return cost.calls ? std::to_string(*cost.calls) : std::string("-"); };
  std::printf("%-12s %14llu %14.1f %12s %14.1f %12s\n", way.name, static_cast<unsigned long long>(way.registrations),
              way.setup.microseconds, text(way.setup).c_str(), way.step.microseconds, text(way.step).c_str());
}

void AddSpreads(const RegistrationSteps& steps, nlohmann::json& results) {
  for (const auto& [key, spread] :
       {std::pair("pool_to_by_hand", steps.pool_to_by_hand), std::pair("group_to_turn", steps.group_to_turn),
        std::pair("group_to_turn_of_two", steps.group_to_turn_of_two)}) {
    results[key] = spread.median;
    results[std::string(key) + "_interval"] = {spread.low, spread.high};
  }
}

void PrintSteps(const RegistrationSteps& steps) {
  for (const RegistrationStep& one : steps.steps)
    std::printf("%-52s %14.1f\n", one.what.c_str(), one.cost.microseconds);
  const auto print = [](const char* what, const Spread& spread) {
    std::printf("# %s %.2f (%.2f to %.2f)\n", what, spread.median, spread.low, spread.high);
  };
  print("a pool, of the time that its memory and window take by hand:", steps.pool_to_by_hand);
  print("windows in a group, of the time in turn:", steps.group_to_turn);
  print("on two communicators:", steps.group_to_turn_of_two);
}

Result<int> RunOn(const Ranks& ranks, const Arguments& arguments, const RankDevice& device, uint64_t bytes) {
  const internal::Driver& driver = *device.driver;
  if (!driver.nccl.has_windows()) return Status(StatusCode::kNotSupported, driver.nccl.WhyNoWindows());
  const ncclComm_t second = COMMPOOL_TRY(MakeCommunicator(ranks, driver, device.device));
  Bench bench(ranks, device, second, arguments.tensors, bytes);
  const Way pool = COMMPOOL_TRY(bench.WithPool(arguments.steps));
  const Way one_by_one = COMMPOOL_TRY(bench.OneByOne());
  driver.nccl.ncclCommDestroy(second);
  const uint64_t whole = internal::RoundUp(arguments.tensors * internal::RoundUp(bytes, 512), 2 * internal::kMiB);
  const RegistrationSteps steps = COMMPOOL_TRY(MeasureRegistrationSteps(ranks, device, whole, kRoundsInTurn));
  if (!ranks.first()) return kSuccess;

  const bool emulated = driver.kind == internal::DriverChoice::kEmulated;
  nlohmann::json results = {{"driver", driver.description}, {"ranks", ranks.count()}, {"modelled", emulated},
                            {"tensors", arguments.tensors}, {"bytes", bytes},         {"communicators", 2}};
  for (const Way* way : {&pool, &one_by_one}) {
    results["rows"].push_back({{"way", way->name},
                               {"registrations", way->registrations},
                               {"setup", ToJson(way->setup)},
                               {"step", ToJson(way->step)}});
  }
  results["step_bytes"] = whole;
  AddSpreads(steps, results);
  for (const RegistrationStep& one : steps.steps) {
    results["steps"].push_back({{"step", one.key}, {"what", one.what}, {"cost", ToJson(one.cost)}});
  }
  return Report(arguments.output, driver.description, results, [&] {
    std::printf("# %s\n# %s, %llu tensors of %s on 2 communicators%s\n%-12s %14s %14s %12s %14s %12s\n",
                driver.description.c_str(), Counted(ranks.count(), "rank").c_str(),
                static_cast<unsigned long long>(arguments.tensors), internal::FormatBytes(bytes).c_str(),
                emulated ? ", modelled microseconds" : "", "", "registrations", "set-up us", "NCCL calls", "step us",
                "NCCL calls");
    Print(pool);
    Print(one_by_one);
    std::printf("\n# step by step, each of %s%s\n", internal::FormatBytes(whole).c_str(),
                emulated ? ", modelled microseconds" : ", microseconds");
    PrintSteps(steps);
  });
}

Result<int> Run(const Ranks& ranks, const Arguments& arguments) {
  const uint64_t bytes = COMMPOOL_TRY(internal::ParseBytes(arguments.bytes));
  if (bytes == 0 || bytes > internal::kGiB) {
    return Status(StatusCode::kInvalidArgument, "--bytes " + arguments.bytes + ": from 1 to 1G");
  }
  const std::unique_ptr<RankDevice> device = COMMPOOL_TRY(OpenRankDevice(ranks));
  const Result<int> done = RunOn(ranks, arguments, *device, bytes);
  return done.ok() ? done : ranks.Told(done.status());
}

}  // namespace

void AddBenchRegistration(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      bench.Add("registration",
                "Tensors known on two communicators: from a pool, and one window for each tensor and communicator");
  command.Footer(
      "A step makes all tensors anew. NCCL's calls are counted on the emulator, whose times are modelled.\n"
      "Example:\n  mpirun -np 4 commpool bench registration --record registration.jsonl");
  command.AddOption("--tensors", arguments->tensors, "How many").Between(1, 10'000).ShowPreset();
  command.AddOption("--bytes", arguments->bytes, "Of each").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--steps", arguments->steps, "Of the pool; the dearest is shown").Between(1, 10'000).ShowPreset();
  AddOutputOptions(command, arguments->output);
  command.Do(WithRanks([arguments](const Ranks& ranks) { return Run(ranks, *arguments); }));
}

}  // namespace commpool::cli
