// commpool_stress engine: several threads use pools at random, and every possible check is made.
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <thread>

#include "src/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/engine/machine.h"
#include "tools/stress/engine/worker.h"

namespace commpool::cli {

namespace {

struct EngineStress {
  uint64_t operations = 100000;
  uint64_t seed = 1;
  unsigned threads = 2;
  Plant plant = Plant::kNone;
  internal::Streams streams = internal::Streams::kOutlive;
};

constexpr uint64_t kCheckEvery = 64;  // steps, where a check looks at everything
constexpr uint64_t kLookEvery = 256;  // steps, between looks for violations

const std::map<std::string, Plant> kPlants = {{"skip-wait", Plant::kSkipWait},
                                              {"double-free", Plant::kDoubleFree},
                                              {"use-after-free", Plant::kUseAfterFree},
                                              {"leak", Plant::kLeak},
                                              {"unannounced-capture", Plant::kUnannouncedCapture},
                                              {"dead-stream", Plant::kDeadStream}};

void Work(StressMachine& machine, Exchange& exchange, const EngineStress& stress, unsigned thread,
          std::atomic<uint64_t>& done) {
  StressWorker worker(machine, exchange, stress.seed * 1000003 + thread);
  const uint64_t share = stress.operations / stress.threads + (thread < stress.operations % stress.threads ? 1 : 0);
  bool plants = thread == 0 && stress.plant != Plant::kNone;  // the first thread, once half of its steps are done
  for (uint64_t step = 0; step < share; ++step) {
    worker.Step();
    if (plants && step >= share / 2) plants = !worker.PlantFault(stress.plant);
    if (stress.threads == 1 || step % kCheckEvery == 0) machine.CheckInvariants();
    done.fetch_add(1, std::memory_order_relaxed);
    if (step % kLookEvery == 0 && machine.Broken()) return;
  }
}

// Until the threads are done, or one has found something.
void ShowProgress(const std::atomic<uint64_t>& done, uint64_t operations, StressMachine& machine) {
  Progress progress("stress engine: operation", operations);
  while (progress.visible() && done.load() < operations && !machine.Broken()) {
    progress.Show(done.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Result<int> Run(const EngineStress& stress) {
  if (stress.plant == Plant::kSkipWait && stress.streams == internal::Streams::kMayDie) {
    return Status(StatusCode::kInvalidArgument,
                  "--plant skip-wait: where streams may die, the host waits, not a stream");
  }
  const std::shared_ptr<const internal::Driver> driver =
      COMMPOOL_TRY(LoadEmulatedDriver("the race checker is the emulator's"));
  const std::unique_ptr<StressMachine> machine =
      COMMPOOL_TRY(StressMachine::Make(driver, stress.plant, stress.streams));

  std::atomic<uint64_t> done{0};
  {
    Exchange exchange;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < stress.threads; ++thread) {
      threads.emplace_back([&, thread] { Work(*machine, exchange, stress, thread, done); });
    }
    ShowProgress(done, stress.operations, *machine);
    for (std::thread& thread : threads) thread.join();
  }
  if (stress.plant != Plant::kNone) std::cout << "planted: " << NameOf(kPlants, stress.plant) << '\n';
  const std::vector<std::string> violations = machine->Finish();
  for (const std::string& violation : violations) std::cout << "violation: " << violation << '\n';
  std::cout << done.load() << " operations, " << violations.size() << " violations\n";
  return Verdict(violations.empty(), stress.plant != Plant::kNone);
}

}  // namespace

void AddStressEngine(Command app) {
  Command command = app.Add("engine", "Pools that grow, used at random by several threads, on one emulated device");
  command.Footer(
      "Examples:\n"
      "  commpool_stress engine --operations 1000000 --threads 4\n"
      "  commpool_stress engine --plant skip-wait");
  auto stress = std::make_shared<EngineStress>();
  command.AddOption("--operations", stress->operations, "Steps of all threads together").Positive().ShowPreset();
  command.AddOption("--seed", stress->seed, "Of the steps").ShowPreset();
  command.AddOption("--threads", stress->threads, "Each with streams of its own").Between(1, 64).ShowPreset();
  AddLives(command, stress->streams, "Whether pools may rely on streams to last, or they just die");
  AddChoice(command, "--plant", stress->plant, kPlants, "A fault that must be found");
  command.Do([stress] { return Run(*stress); });
}

}  // namespace commpool::cli
