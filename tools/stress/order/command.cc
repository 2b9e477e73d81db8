// commpool_stress order: random programs whose blocks are used on streams of all devices; nobody is handed memory that
// somebody may still touch.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "src/library/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/order/worker.h"

namespace commpool::cli {

namespace {

using namespace stress_order;  // NOLINT: this file is its command
using Clock = std::chrono::steady_clock;

struct Order {
  uint64_t steps = 100000;
  uint64_t seconds = 0;  // 0: until the steps are done
  uint64_t seed = 1;
  unsigned threads = 1;
  std::vector<std::string> only;
  Plant plant = Plant::kNone;
  Judge judge = Judge::kAll;
  int importer = -1;
};

constexpr uint64_t kStepsOfProgram = 800;
constexpr uint64_t kLookEvery = 16;  // steps, between looks for violations

const std::map<std::string, Plant> kPlants = {
    {"skip-wait", Plant::kSkipWait}, {"skip-record", Plant::kSkipRecord}, {"leak", Plant::kLeak}};

const std::map<std::string, Judge> kJudges = {{"all", Judge::kAll}, {"bytes", Judge::kBytes}};

// Tells of those that this machine cannot have.
Result<std::vector<PoolKind>> FindKinds(Machine& machine, const std::vector<std::string>& only) {
  if (machine.devices() == 1) std::cout << "left out: peers and ranks of symmetric pools: there is one device\n";
  std::vector<PoolKind> kinds;
  for (const auto& [name, kind] : kPoolKinds) {
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    const Status tried = OrderPools::Try(machine, kind);
    if (tried.ok()) {
      kinds.push_back(kind);
    } else if (tried.code() == StatusCode::kNotSupported) {
      std::cout << "left out: " << name << " pools: " << tried.message() << '\n';
    } else {
      return tried;
    }
  }
  if (kinds.empty()) return Status(StatusCode::kNotSupported, "this machine has none of these kinds of pools");
  return kinds;
}

std::vector<PoolKind> Choose(std::mt19937_64& random, const std::vector<PoolKind>& among) {
  std::vector<PoolKind> kinds;
  for (uint64_t count = 1 + random() % 4; count > 0; --count) kinds.push_back(among[random() % among.size()]);
  return kinds;
}

class Run {
 public:
  Run(Machine& machine, Importer& importer, const Order& order)
      : machine_(machine),
        importer_(importer),
        order_(order),
        end_(Clock::now() + std::chrono::seconds(order.seconds)) {}

  Result<int> Do() {
    among_ = COMMPOOL_TRY(FindKinds(machine_, order_.only));
    Progress progress("stress order: step", order_.steps);
    const auto begin = Clock::now();
    uint64_t violations = 0;
    for (uint64_t number = 0; violations == 0 && !Over(); ++number) {
      progress.Show(done_.load());
      violations = COMMPOOL_TRY(RunProgram(order_.seed + number));
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    std::cout << done_.load() << " steps, " << violations << " violations\n";
    std::cerr << "after " << took.count() << " s\n";
    return Verdict(violations == 0, order_.plant != Plant::kNone);
  }

 private:
  bool Over() const {
    if (order_.seconds != 0) return Clock::now() >= end_;
    return done_.load() >= order_.steps;
  }

  Result<uint64_t> RunProgram(uint64_t seed) {
    std::mt19937_64 random(seed);
    const int most = machine_.MostDevices();
    const bool one = most == 1 || random() % 8 == 0;
    const int devices = one ? 1 : 2 + static_cast<int>(random() % static_cast<uint64_t>(most - 1));
    const std::vector<PoolKind> kinds = Choose(random, among_);
    std::string description;
    {
      const std::unique_ptr<OrderPools> pools = COMMPOOL_TRY(OrderPools::Make(machine_, random, devices, kinds));
      description = pools->Describe();
      OrderShared shared;
      shared.importer = &importer_;
      std::vector<std::thread> threads;
      for (unsigned worker = 0; worker < order_.threads; ++worker) {
        threads.emplace_back([&, worker] { Work(*pools, shared, seed * 64 + worker); });
      }
      for (std::thread& thread : threads) thread.join();
      const Status read = importer_.Finish();
      if (!read.ok()) machine_.Violate(kStepsOfProgram, read.message());
      pools->Close(kStepsOfProgram);
    }
    machine_.Broken(kStepsOfProgram);
    const std::vector<std::string> violations = machine_.TakeViolations();
    if (!violations.empty()) std::cout << "seed " << seed << ", " << description << '\n';
    for (const std::string& violation : violations) std::cout << violation;
    return violations.size();
  }

  void Work(OrderPools& pools, OrderShared& shared, uint64_t seed) {
    OrderWorker worker(machine_, pools, shared, seed);
    for (uint64_t step = 1; step <= kStepsOfProgram / order_.threads && !Over(); ++step) {
      worker.Step(step);
      if (order_.threads == 1) pools.CheckInvariants();
      done_.fetch_add(1);
      if (step % kLookEvery == 0 && machine_.Broken(step)) return;
    }
  }

  Machine& machine_;
  Importer& importer_;
  const Order& order_;
  const Clock::time_point end_;
  std::vector<PoolKind> among_;
  std::atomic<uint64_t> done_{0};
};

Result<int> RunOrder(const Order& order) {
  if (order.importer >= 0) return RunImporter(order.importer);
  if (order.plant == Plant::kSkipWait && order.threads > 1) {
    return Status(StatusCode::kInvalidArgument, "--plant skip-wait: one thread, for it skips the waits of the process");
  }
  // The emulator picks among streams that may run.
  setenv("COMMPOOL_EMULATOR", ("seed=" + std::to_string(order.seed)).c_str(), 0);
  const std::unique_ptr<Machine> machine = COMMPOOL_TRY(Machine::Open(order.plant, order.judge));
  const std::unique_ptr<Importer> importer = COMMPOOL_TRY(Importer::Start());
  if (order.plant != Plant::kNone) std::cout << "planted: " << NameOf(kPlants, order.plant) << '\n';
  return Run(*machine, *importer, order).Do();
}

std::vector<std::string> NamesOfKinds() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kPoolKinds) names.push_back(name);
  return names;
}

}  // namespace

void AddStressOrder(Command app) {
  Command command = app.Add("order", "Random programs over several devices: who may touch a block");
  command.Footer(
      "Examples:\n"
      "  commpool_stress order --steps 1000000\n"
      "  commpool_stress order --seconds 30 --threads 4\n"
      "  commpool_stress order --only pinned,host --seed 7\n"
      "  commpool_stress order --plant skip-wait\n"
      "  COMMPOOL_DRIVER=cuda commpool_stress order --seconds 30");
  auto order = std::make_shared<Order>();
  command.AddOption("--steps", order->steps, "Of all programs together").Positive().ShowPreset();
  command.AddOption("--seconds", order->seconds, "Ends the run then, instead of after so many steps");
  command.AddOption("--seed", order->seed, "Of the first program; the next has the next").ShowPreset();
  command.AddOption("--threads", order->threads, "Workers of a program, at once; with 1 it is the same at each run")
      .Between(1, 16)
      .ShowPreset();
  command.AddOption("--only", order->only, "Kinds of pools").OneOf(NamesOfKinds()).SeparatedByCommas();
  AddChoice(command, "--plant", order->plant, kPlants, "A fault that must be found");
  AddChoice(command, "--judge", order->judge, kJudges, "bytes: without the emulator's race checker, as on GPUs");
  command.AddOption("--importer", order->importer).Hidden();
  command.Do([order] { return RunOrder(*order); });
}

}  // namespace commpool::cli
