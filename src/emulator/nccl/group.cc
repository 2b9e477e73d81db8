#include "src/emulator/nccl/group.h"

#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "src/emulator/nccl/log.h"

namespace commpool::emulated_nccl {

namespace {

// Runs each work on a thread of its own; the first failure in their order.
ncclResult_t RunSideBySide(const std::vector<Group::Work>& works) {
  if (works.size() == 1) return works.front()();
  std::vector<ncclResult_t> results(works.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t index = 0; index < works.size(); ++index) {
    threads.emplace_back([&, index] { results[index] = works[index](); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// Every use of a communicator marks its thread: work that moved to another thread does so again.
ncclResult_t RunAs(Communicator& communicator, const Group::Work& work) {
  if (!communicator.Enter("ncclGroupEnd")) return ncclInvalidUsage;
  const ncclResult_t result = work();
  communicator.Leave();
  return result;
}

}  // namespace

Group& Group::OfThisThread() {
  thread_local Group group;
  return group;
}

ncclResult_t Group::Note(ncclResult_t result) {
  if (open() && error_ == ncclSuccess) error_ = result;
  return result;
}

ncclResult_t Group::Initialize(Work work) {
  if (!open()) return work();
  initializations_.push_back({nullptr, std::move(work)});
  return ncclSuccess;
}

ncclResult_t Group::WaitForRanks(std::shared_ptr<Communicator> communicator, Work work) {
  if (!open()) return work();
  waits_.push_back({std::move(communicator), std::move(work)});
  return ncclSuccess;
}

ncclResult_t Group::Launch(std::shared_ptr<Communicator> communicator, Work work) {
  if (!open()) return work();
  launches_.push_back({std::move(communicator), std::move(work)});
  return ncclSuccess;
}

ncclResult_t Group::Transfer(std::shared_ptr<Communicator> communicator, CUstream stream,
                             std::vector<emulated_nccl::Transfer> transfers) {
  if (!open()) return communicator->LaunchTransfers(stream, std::move(transfers));
  for (Transfers& known : transfers_) {
    if (known.communicator != communicator) continue;
    if (known.stream != stream) {
      COMMPOOL_NCCL_WARN("the emulator takes one stream for all sends and receives of a group on one communicator");
      return Note(ncclInvalidUsage);
    }
    known.transfers.insert(known.transfers.end(), transfers.begin(), transfers.end());
    return ncclSuccess;
  }
  transfers_.push_back({std::move(communicator), stream, std::move(transfers)});
  return ncclSuccess;
}

ncclResult_t Group::End() {
  if (!open()) return ncclInvalidUsage;
  if (--depth_ > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(error_, ncclSuccess);
  std::vector<Task> initializations = std::exchange(initializations_, {});
  std::vector<Task> waits = std::exchange(waits_, {});
  std::vector<Task> launches = std::exchange(launches_, {});
  for (Transfers& of_one : std::exchange(transfers_, {})) {
    const std::shared_ptr<Communicator> communicator = of_one.communicator;
    launches.push_back({communicator, [communicator, stream = of_one.stream, transfers = std::move(of_one.transfers)] {
                          return communicator->LaunchTransfers(stream, transfers);
                        }});
  }
  if (error != ncclSuccess) return error;
  return RunAll(std::move(initializations), std::move(waits), std::move(launches));
}

ncclResult_t Group::RunAll(std::vector<Task> initializations, std::vector<Task> waits, std::vector<Task> launches) {
  std::vector<Work> works;
  for (Task& task : initializations) works.push_back(std::move(task.work));
  if (!works.empty()) {
    if (const ncclResult_t result = RunSideBySide(works); result != ncclSuccess) return result;
  }
  // In the order of each communicator's calls, whatever the addresses of communicators are.
  std::vector<std::vector<Task>> sequences;
  std::map<Communicator*, size_t> place;
  for (Task& task : waits) {
    const auto [found, is_new] = place.try_emplace(task.communicator.get(), sequences.size());
    if (is_new) sequences.emplace_back();
    sequences[found->second].push_back(std::move(task));
  }
  works.clear();
  for (const std::vector<Task>& sequence : sequences) {
    works.push_back([&sequence] {
      for (const Task& task : sequence) {
        if (const ncclResult_t result = RunAs(*task.communicator, task.work); result != ncclSuccess) return result;
      }
      return ncclSuccess;
    });
  }
  if (!works.empty()) {
    if (const ncclResult_t result = RunSideBySide(works); result != ncclSuccess) return result;
  }
  for (const Task& task : launches) {
    if (const ncclResult_t result = RunAs(*task.communicator, task.work); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

}  // namespace commpool::emulated_nccl
