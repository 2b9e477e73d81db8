// What `commpool_stress order` runs on: the devices, the library behind the C ABI, and what went wrong so far.
//
// Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"
#include "tools/stress/order/history.h"

namespace commpool::cli::stress_order {

// Faults to plant; the run must find them. kSkipWait: the library's streams do not wait. kSkipRecord: the program does
// not record the streams that it uses. kLeak: it never frees one block.
enum class Plant { kNone, kSkipWait, kSkipRecord, kLeak };

// Who finds faults: what the streams read, the pools' books, and where it has one the emulator's race checker; or, as
// with a GPU, not that.
enum class Judge { kAll, kBytes };

class Machine {
 public:
  // COMMPOOL_DRIVER says which driver; else the emulator.
  static Result<std::unique_ptr<Machine>> Open(Plant plant, Judge judge);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const internal::Driver& driver() const { return *driver_; }
  const internal::CudaDriver& cuda() const { return driver_->cuda; }
  int devices() const { return static_cast<int>(contexts_.size()); }
  // Of a program.
  int MostDevices() const { return devices() < 4 ? devices() : 4; }
  Plant plant() const { return plant_; }
  void MakeCurrent(int device) const { cuda().cuCtxSetCurrent(contexts_[static_cast<size_t>(device)].get()); }
  History& history() { return history_; }

  // Calls the library: call() returns its commpool_status. A planted fault is in force meanwhile.
  template <typename Call>
  Status Ask(Call call) {
    if (plant_ == Plant::kSkipWait) SkipWaits(true);
    const commpool_status code = call();
    Status status = code == COMMPOOL_OK ? Status() : Status(static_cast<StatusCode>(code), commpool_last_error());
    if (plant_ == Plant::kSkipWait) SkipWaits(false);
    return status;
  }

  // Notes the first violations of a program.
  void Violate(uint64_t step, const std::string& what, const MemoryRange& where = {});
  // Whether anything is wrong by now; asks the emulator too, where it judges.
  bool Broken(uint64_t step);
  // Each violation, with the history of its memory.
  std::vector<std::string> TakeViolations();

 private:
  Machine(std::shared_ptr<const internal::Driver> driver, Plant plant, Judge judge)
      : driver_(std::move(driver)), plant_(plant), judge_(judge) {}
  void SkipWaits(bool skip) const;

  const std::shared_ptr<const internal::Driver> driver_;
  const Plant plant_;
  const Judge judge_;
  std::vector<internal::PrimaryContext> contexts_;
  History history_;
  std::atomic<bool> broken_{false};
  std::mutex mutex_;
  std::vector<std::string> violations_;
};

}  // namespace commpool::cli::stress_order
