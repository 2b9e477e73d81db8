#include "tools/stress/registration/machine.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "src/library/base/try.h"
#include "tools/stress/emulated_run.h"

namespace commpool::cli {

namespace {

bool BeginsWith(const std::string& line, const char* text) { return line.rfind(text, 0) == 0; }

// What lives as long as the ranks.
bool OutlivesSchedules(const std::string& line) {
  return BeginsWith(line, "NCCL communicator") || BeginsWith(line, "primary context") || BeginsWith(line, "stream");
}

std::vector<std::string> Sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> CompareShared(const std::vector<RankOutcome>& outcomes) {
  const std::vector<std::string>& first = outcomes.front().shared;
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    const std::vector<std::string>& other = outcomes[rank].shared;
    const auto [mine, theirs] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    if (mine == first.end() && theirs == other.end()) continue;
    return {"rank " + std::to_string(rank) + ": " + (theirs == other.end() ? "nothing" : *theirs) +
            ", rank 0: " + (mine == first.end() ? "nothing" : *mine)};
  }
  return {};
}

}  // namespace

RegistrationMachine::RegistrationMachine(std::shared_ptr<const internal::Driver> driver)
    : driver_(std::move(driver)),
      before_(Sorted(EmulatorLines(*driver_, "commpoolEmulatorLeaks"))),
      runtime_(std::make_unique<internal::Runtime>(MortalDriver(driver_))) {}

Status RegistrationMachine::NeedRanks(const Schedule& schedule) {
  if (ranks_ == nullptr || ranks_->count() != schedule.ranks) {
    ranks_.reset();
    ranks_ = COMMPOOL_TRY(StressRanks::Make(*driver_, *runtime_, schedule.ranks));
  }
  return ranks_->Connect(schedule.second_from);
}

std::vector<std::string> RegistrationMachine::Run(const Schedule& schedule, const RegistrationDeadlines& deadlines,
                                                  const std::function<void(const ScheduleRun*)>& on_run) {
  const bool silent = schedule.death == Death::kSilent;
  ScheduleRun run(*runtime_, schedule, silent ? deadlines.short_ms : deadlines.usual_ms);
  on_run(&run);
  const Status ready = NeedRanks(schedule);
  if (!ready.ok()) {
    on_run(nullptr);
    return {"connecting: " + ready.message()};
  }

  std::vector<RankOutcome> outcomes(static_cast<size_t>(schedule.ranks));
  ranks_->Run([&](StressRank& rank) { outcomes[static_cast<size_t>(rank.number)] = RunRank(run, *driver_, rank); });
  on_run(nullptr);

  std::vector<std::string> violations;
  uint64_t left_bytes = 0;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    for (const std::string& violation : outcomes[rank].violations) {
      violations.push_back("rank " + std::to_string(rank) + ", " + violation);
    }
    left_bytes += outcomes[rank].left_bytes;
  }
  for (const std::string& report : EmulatorLines(*driver_, "commpoolEmulatorReports")) {
    violations.push_back("the emulator: " + report);
  }
  if (violations.empty() && schedule.death == Death::kNone) violations = CompareShared(outcomes);
  if (schedule.death != Death::kNone || !violations.empty()) {
    abandoned_ = true;
    std::vector<std::string> wrong = FreeLeftovers(left_bytes);
    if (violations.empty()) violations = std::move(wrong);
  }
  for (const std::string& line : Leftovers()) violations.push_back("left: " + line);
  return violations;
}

std::vector<std::string> RegistrationMachine::Leftovers() const {
  std::vector<std::string> now = EmulatorLines(*driver_, "commpoolEmulatorLeaks");
  std::erase_if(now, OutlivesSchedules);
  now = Sorted(std::move(now));
  std::vector<std::string> more;
  std::set_difference(now.begin(), now.end(), before_.begin(), before_.end(), std::back_inserter(more));
  return more;
}

std::vector<std::string> RegistrationMachine::FreeLeftovers(uint64_t expected_bytes) {
  const internal::CudaDriver& cuda = driver_->cuda;
  uint64_t bytes_left = 0;
  for (const std::string& line : Leftovers()) {
    unsigned long long address = 0;
    unsigned long long bytes = 0;
    if (std::sscanf(line.c_str(), "mapping at 0x%llx of %llu bytes", &address, &bytes) != 2) continue;
    bytes_left += bytes;
    CUmemGenericAllocationHandle handle = 0;
    cuda.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
    cuda.cuMemUnmap(address, bytes);
    cuda.cuMemAddressFree(address, bytes);
    cuda.cuMemRelease(handle);  // our own reference
    cuda.cuMemRelease(handle);  // and the pool's
  }
  // Memory that is mapped nowhere belongs to segments that such pools had released.
  for (const std::string& line : Leftovers()) {
    unsigned long long address = 0;
    unsigned long long bytes = 0;
    if (std::sscanf(line.c_str(), "reserved addresses at 0x%llx of %llu bytes", &address, &bytes) == 2) {
      cuda.cuMemAddressFree(address, bytes);
    }
  }
  if (bytes_left == expected_bytes) return {};
  return {std::to_string(bytes_left) + " bytes are mapped where pools that ended had " +
          std::to_string(expected_bytes)};
}

std::vector<std::string> RegistrationMachine::Finish() {
  ranks_.reset();
  runtime_.reset();
  std::vector<std::string> now = Sorted(EmulatorLines(*driver_, "commpoolEmulatorLeaks"));
  // An abandoned pool never releases its device's context.
  if (abandoned_) std::erase_if(now, [](const std::string& line) { return BeginsWith(line, "primary context"); });
  std::vector<std::string> left;
  std::set_difference(now.begin(), now.end(), before_.begin(), before_.end(), std::back_inserter(left));
  for (const std::string& report : EmulatorLines(*driver_, "commpoolEmulatorReports")) left.push_back(report);
  return left;
}

}  // namespace commpool::cli
