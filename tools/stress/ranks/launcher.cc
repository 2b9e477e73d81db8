#include "tools/stress/ranks/launcher.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "tools/stress/ranks/rank_process.h"

namespace commpool::cli::stress_ranks {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kLookMs = 5;  // how often to look at the processes

// Small segments make schedules cheap. An NCCL that waits longer than all deadlines stands for one that waits for ever.
std::vector<std::string> VariablesOf(const Schedule& schedule) {
  const std::string version = schedule.second == Second::kGrown ? ",nccl=2.30.7" : "";
  return {"COMMPOOL_EMULATOR=devices=8,memory=1GiB,granularity=64KiB,nccl_timeout_ms=60000" + version,
          "COMMPOOL_LOG=error"};
}

std::vector<std::string> ArgumentsOf(const WorkerOptions& common, int rank, int hosts) {
  return {"commpool_stress", "ranks",
          "--worker",        std::to_string(rank),
          "--host",          std::to_string(hosts == 0 ? 0 : 1 + rank % hosts),
          "--seed",          std::to_string(common.seed),
          "--schedule",      std::to_string(common.number),
          "--ranks",         std::to_string(common.ranks),
          "--deadline-ms",   std::to_string(common.deadline_ms),
          "--worker-plant",  std::to_string(static_cast<int>(common.plant))};
}

class Run {
 public:
  Run(const Schedule& schedule, const WorkerOptions& common, int hosts)
      : schedule_(schedule), deadline_(common.deadline_ms), records_(static_cast<size_t>(schedule.ranks)) {
    const std::vector<std::string> variables = VariablesOf(schedule);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      processes_.push_back(std::make_unique<RankProcess>(ArgumentsOf(common, rank, hosts), variables));
    }
    stopped_.resize(processes_.size());
  }

  std::vector<RankRecord> Watch() {
    while (!AllEnded() && Clock::now() - last_sign_ < Patience()) {
      Await();
      for (size_t rank = 0; rank < processes_.size(); ++rank) {
        // Asks for its end first, so that nothing that it sent before is lost.
        Ask(rank);
        Hear(rank);
      }
      if (Settled()) TellSurvivors();
      ContinueStopped();
    }
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      records_[rank].wait_status = processes_[rank]->wait_status();
      records_[rank].output = processes_[rank]->Output();
    }
    return std::move(records_);
  }

 private:
  milliseconds Patience() const { return 5 * deadline_ + milliseconds(10000); }

  bool AllEnded() const {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const auto& process) { return process->wait_status().has_value(); });
  }

  void Await() const {
    std::vector<pollfd> waits;
    for (const auto& process : processes_) {
      if (!process->wait_status()) waits.push_back({process->control(), POLLIN, 0});
    }
    poll(waits.data(), waits.size(), kLookMs);
  }

  void Ask(size_t rank) {
    const RankProcess::Change change = processes_[rank]->Ask();
    if (change == RankProcess::Change::kStopped) stopped_[rank] = Clock::now();
    if (change != RankProcess::Change::kNone) last_sign_ = Clock::now();
  }

  void Hear(size_t rank) {
    for (const std::string& line : processes_[rank]->Receive()) {
      last_sign_ = Clock::now();
      if (Note(line, records_[rank])) continue;
      for (size_t other = 0; other < processes_.size(); ++other) {
        if (other != rank) processes_[other]->Send(line);
      }
    }
  }

  // Whether every rank without a fault has ended its program or seen the loss of another.
  bool Settled() const {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto index = static_cast<size_t>(rank);
      const bool settled = records_[index].waits || processes_[index]->wait_status().has_value();
      if (!schedule_.IsVictim(rank) && !settled) return false;
    }
    return true;
  }

  void TellSurvivors() {
    std::string survivors;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (!schedule_.IsVictim(rank)) survivors += (survivors.empty() ? "" : ",") + std::to_string(rank);
    }
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      if (!std::exchange(records_[rank].waits, false)) continue;
      told_ = true;
      processes_[rank]->Send("survivors are " + survivors);
    }
  }

  void ContinueStopped() {
    for (const Fault& fault : schedule_.faults) {
      auto& since = stopped_[static_cast<size_t>(fault.victim)];
      if (!since) continue;
      const bool over = fault.kind == Kind::kPause ? Clock::now() - *since > deadline_ / 3 : told_ || Settled();
      if (!over) continue;
      since.reset();
      processes_[static_cast<size_t>(fault.victim)]->Continue();
    }
  }

  const Schedule& schedule_;
  const milliseconds deadline_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
  std::vector<RankRecord> records_;
  std::vector<std::optional<Clock::time_point>> stopped_;
  Clock::time_point last_sign_ = Clock::now();
  bool told_ = false;
};

}  // namespace

std::vector<RankRecord> Launch(const Schedule& schedule, const WorkerOptions& common, int hosts) {
  return Run(schedule, common, hosts).Watch();
}

}  // namespace commpool::cli::stress_ranks
