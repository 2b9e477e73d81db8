// The program of one process of `commpool_stress ranks`: its steps and its clean end. One thread.
#pragma once

#include <cuda.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/library/driver/handles.h"
#include "src/library/pool/runtime.h"
#include "tools/stress/ranks/armed_fault.h"
#include "tools/stress/ranks/communicators.h"
#include "tools/stress/ranks/control.h"
#include "tools/stress/ranks/plant.h"
#include "tools/stress/ranks/pool_in_use.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

struct ProgramOptions {
  int rank = 0;
  uint64_t deadline_ms = 1000;
  Plant plant = Plant::kNone;  // of this process
};

class Program {
 public:
  Program(const internal::Driver& driver, std::shared_ptr<const internal::Driver> faulty_driver,
          const Schedule& schedule, const ProgramOptions& options, Control& control, ArmedFault& armed);

  // Collective.
  Status Start();
  // Makes the schedule's steps as far as they succeed; then the recovery after a loss; then the clean end.
  void Run();

  Communicators& communicators() { return communicators_; }
  // When the running call began, in nanoseconds; 0 where none runs. Any thread.
  int64_t call_began_ns() const { return call_began_ns_.load(); }

 private:
  // False where the program cannot continue.
  bool RunSteps();
  Status Do(const Step& step);
  Status Create(const Step& step);
  Status Allocate(const Step& step);
  Status Free(const Step& step);
  Status Record(const Step& step);
  Status Reduce(const Step& step);
  Status Burst(const Step& step);
  Status ReplaceStream();

  Status Check(CUresult result, const char* call) const;
  void PlantBefore(size_t step);
  Status WithPlantedName(const Status& status, const Step& step) const;

  void End();

  const internal::Driver& driver_;
  const std::shared_ptr<const internal::Driver> faulty_driver_;
  const Schedule& schedule_;
  const ProgramOptions options_;
  Control& control_;
  ArmedFault& armed_;
  std::vector<std::string> before_;  // the emulator's leaks at the start
  internal::PrimaryContext context_;
  std::array<CUstream, 2> streams_ = {};
  Communicators communicators_;
  std::unique_ptr<internal::Runtime> runtime_;
  std::vector<PoolInUse> pools_;
  std::atomic<int64_t> call_began_ns_{0};
};

}  // namespace commpool::cli::stress_ranks
