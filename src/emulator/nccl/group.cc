#include "src/emulator/nccl/group.h"

#include <atomic>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "src/emulator/nccl/host_failure.h"
#include "src/emulator/nccl/log.h"
#include "src/library/base/of_this_thread.h"

namespace commpool::internal::emulated_nccl {

namespace {

// Runs each work on its own thread. Returns the first failure in their order.
ncclResult_t RunSideBySide(const std::vector<Group::Work>& works) {
  if (works.size() == 1) return OrSystemError(works.front());
  std::vector<ncclResult_t> results(works.size(), ncclSuccess);
  std::vector<std::thread> threads;
  // Nobody begins before all have a thread: else some would wait for a thread that never comes.
  std::promise<bool> ready;
  const std::shared_future<bool> all_here = ready.get_future().share();
  const ncclResult_t started = OrSystemError([&] {
    threads.reserve(works.size());
    for (size_t index = 0; index < works.size(); ++index) {
      threads.emplace_back([&, index] {
        if (all_here.get()) results[index] = OrSystemError(works[index]);
      });
    }
    return ncclSuccess;
  });
  ready.set_value(started == ncclSuccess);
  for (std::thread& thread : threads) thread.join();
  if (started != ncclSuccess) return started;
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// A communicator marks the thread that uses it. Work that moved to another thread marks that one.
ncclResult_t RunAs(EmulatedCommunicator& communicator, const Group::Work& work) {
  if (!communicator.Enter("ncclGroupEnd")) return ncclInvalidUsage;
  const ncclResult_t result = work();
  communicator.Leave();
  return result;
}

}  // namespace

Group& Group::OfThisThread() {
  if (Group* const group = internal::OfThisThread<Group, Group>()) return *group;
  static thread_local constinit Group* late = nullptr;  // used while the thread ends; never destroyed
  if (late == nullptr) late = new Group();
  return *late;
}

ncclResult_t Group::Note(ncclResult_t result) {
  if (open() && error_ == ncclSuccess) error_ = result;
  return result;
}

ncclResult_t Group::Take(std::vector<Task> Tasks::*kind, Task task) {
  std::erase(task.users, nullptr);
  if (open()) {
    (tasks_.*kind).push_back(std::move(task));
    return ncclSuccess;
  }
  return task.users.empty() ? OrSystemError(task.work) : AsyncWork::Run(std::move(task.users), std::move(task.work));
}

ncclResult_t Group::Initialize(Work work, std::shared_ptr<AsyncWork> async) {
  return Take(&Tasks::initializations, {nullptr, std::move(work), {std::move(async)}});
}

ncclResult_t Group::WaitForRanks(std::shared_ptr<EmulatedCommunicator> communicator, Work work,
                                 std::shared_ptr<AsyncWork> async) {
  const std::shared_ptr<AsyncWork> own = communicator->async();
  return Take(&Tasks::waits, {std::move(communicator), std::move(work), {own, std::move(async)}});
}

// NCCL 2.28.9, src/group.cc: the first launch makes connections, and the launch is in progress meanwhile.
ncclResult_t Group::Launch(std::shared_ptr<EmulatedCommunicator> communicator, Work work) {
  const std::shared_ptr<AsyncWork> own = communicator->TakeFirstLaunch() ? communicator->async() : nullptr;
  return Take(&Tasks::launches, {std::move(communicator), std::move(work), {own}});
}

ncclResult_t Group::Transfer(std::shared_ptr<EmulatedCommunicator> communicator, CUstream stream,
                             std::vector<PeerTransfer> transfers) {
  if (!open()) {
    return Launch(communicator, [communicator, stream, transfers = std::move(transfers)] {
      return communicator->LaunchTransfers(stream, transfers);
    });
  }
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
  for (Transfers& of_one : std::exchange(transfers_, {})) {
    ++depth_;  // the launch is the group's last
    const std::shared_ptr<EmulatedCommunicator> communicator = of_one.communicator;
    Launch(communicator, [communicator, stream = of_one.stream, transfers = std::move(of_one.transfers)] {
      return communicator->LaunchTransfers(stream, transfers);
    });
    --depth_;
  }
  Tasks tasks = std::exchange(tasks_, {});
  if (error != ncclSuccess) return error;
  std::vector<std::shared_ptr<AsyncWork>> users;
  for (const auto& kind : {tasks.initializations, tasks.waits, tasks.launches}) {
    for (const Task& task : kind) users.insert(users.end(), task.users.begin(), task.users.end());
  }
  if (users.empty()) return RunAll(tasks);
  return AsyncWork::Run(std::move(users), [tasks = std::move(tasks)] { return RunAll(tasks); });
}

void Group::Drop() {
  if (!open() || --depth_ > 0) return;
  error_ = ncclSuccess;
  transfers_.clear();
  tasks_ = {};
}

ncclResult_t Group::RunAll(const Tasks& tasks) {
  std::vector<Work> works;
  for (const Task& task : tasks.initializations) works.push_back(task.work);
  if (!works.empty()) {
    if (const ncclResult_t result = RunSideBySide(works); result != ncclSuccess) return result;
  }
  // Keeps the order of each communicator's calls, whatever the communicators' addresses are.
  std::vector<std::vector<Task>> sequences;
  std::map<EmulatedCommunicator*, size_t> place;
  for (const Task& task : tasks.waits) {
    const auto [found, is_new] = place.try_emplace(task.communicator.get(), sequences.size());
    if (is_new) sequences.emplace_back();
    sequences[found->second].push_back(task);
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
  for (const Task& task : tasks.launches) {
    if (const ncclResult_t result = RunAs(*task.communicator, task.work); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

}  // namespace commpool::internal::emulated_nccl
