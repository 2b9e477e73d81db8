// Which communicators exist in this process. Calls refuse any other handle and never follow it. Any thread.
#pragma once

#include <nccl.h>

#include <map>
#include <memory>
#include <mutex>

#include "src/emulator/nccl/async_work.h"
#include "src/emulator/nccl/communicator.h"

namespace commpool::internal::emulated_nccl {

// Owns a reference to every live communicator, by handle. API functions add, find and remove entries.
class LiveCommunicators {
 public:
  static LiveCommunicators& Get();

  struct Entry {
    std::shared_ptr<EmulatedCommunicator> communicator;  // null until a nonblocking communicator is initialised
    std::shared_ptr<AsyncWork> work;                     // null for a blocking one
    bool exists() const { return communicator != nullptr || work != nullptr; }
  };

  ncclComm_t Add(std::shared_ptr<EmulatedCommunicator> communicator);
  // Makes a handle for a communicator that is not ready yet. Fill returns false if the program removed the handle.
  ncclComm_t Reserve(std::shared_ptr<AsyncWork> work);
  bool Fill(ncclComm_t handle, std::shared_ptr<EmulatedCommunicator> communicator);
  Entry Find(ncclComm_t handle);
  // Removes the entry and returns it.
  Entry Remove(ncclComm_t handle);

 private:
  std::mutex mutex_;
  std::map<ncclComm_t, Entry> live_;
};

// Begins an API call on a communicator: counts the call, injects a fault, finds the communicator, and marks the thread
// as its user. It keeps the communicator alive and ends the mark when the call ends.
class Call {
 public:
  // What a call does while a nonblocking communicator works. NCCL refuses most calls then (ncclInvalidArgument), and
  // after a failure too. Calls that end registrations check neither (NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc).
  enum class Unfinished { kRefuse, kWait, kGoOn };
  Call(const char* name, ncclComm_t handle, Unfinished unfinished = Unfinished::kRefuse);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // If this is not ncclSuccess, the API function returns it at once.
  ncclResult_t result() const { return result_; }
  // Null if the initialisation failed (Unfinished::kWait only).
  const std::shared_ptr<EmulatedCommunicator>& communicator() const { return communicator_; }
  EmulatedCommunicator* operator->() const { return communicator_.get(); }

 private:
  std::shared_ptr<EmulatedCommunicator> communicator_;
  ncclResult_t result_ = ncclSuccess;
  bool entered_ = false;
};

// Begins a call without a communicator: returns the injected result, or ncclSuccess.
ncclResult_t EnterCall(const char* name);

// Finds the entry of a handle, whichever thread uses its communicator. An unknown handle is reported and gives an empty
// entry.
LiveCommunicators::Entry FindEntry(const char* name, ncclComm_t handle);

// Returns the communicator if it is ready; else null.
std::shared_ptr<EmulatedCommunicator> FindReported(const char* name, ncclComm_t handle);

}  // namespace commpool::internal::emulated_nccl
