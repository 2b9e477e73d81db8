// The state of one run of `commpool_stress host`: the runtime behind the C ABI, streams and communicators of emulated
// devices, the calls of the run, and the violations.
//
// One thread.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

struct HostBlock {
  uint64_t bytes = 0;
  commpool_pool pool = 0;
  CUstream stream = nullptr;
};

class HostMachine {
 public:
  // REQUIRES: the driver is an emulated one.
  HostMachine(std::shared_ptr<const internal::Driver> driver, int devices);
  ~HostMachine();
  HostMachine(const HostMachine&) = delete;
  HostMachine& operator=(const HostMachine&) = delete;

  const internal::Driver& driver() const { return *driver_; }
  CUstream stream(int device, size_t number) const { return streams_[static_cast<size_t>(device)][number]; }
  void UseDevice(int device) const;
  // Makes a communicator of all devices, as a thread that owns all ranks does. Returns one handle for each rank.
  std::vector<ncclComm_t> MakeCommunicators();

  // Makes a call of the library. Where the fault strikes, the call must fail for a stated reason or serve all the same.
  // Then nothing may have changed, and the repeated call must work.
  using Call = std::function<commpool_status()>;
  void Make(const std::string& name, const Call& call, commpool_status expected = COMMPOOL_OK);

  // The program's own books, which Make compares with the library's.
  void Know(commpool_pool pool) { pools_.push_back(pool); }
  void Forget(commpool_pool pool) { std::erase(pools_, pool); }
  void* Allocate(commpool_pool pool, uint64_t bytes, CUstream stream);
  // The same through the open scopes, one of which leads to `pool`.
  void* AllocateScoped(int device, commpool_pool pool, uint64_t bytes, CUstream stream);
  void Free(void* pointer);

  void Violate(const std::string& what);
  // Ends the runtime. Returns the violations, one line each.
  std::vector<std::string> Finish();
  // One of "refused", "served", "not reached".
  const std::string& outcome() const { return outcome_; }
  const std::string& struck() const { return struck_; }

 private:
  void* Serve(const std::string& name, commpool_pool pool, uint64_t bytes, CUstream stream,
              const std::function<commpool_status(void**)>& call);
  void Touch(void* pointer, const HostBlock& block);
  void CheckBooks(const std::string& name);
  void CheckPool(const std::string& name, commpool_pool pool);

  const std::shared_ptr<const internal::Driver> driver_;
  std::vector<CUcontext> contexts_;
  std::vector<std::vector<CUstream>> streams_;
  std::vector<ncclComm_t> communicators_;
  std::vector<commpool_pool> pools_;
  std::map<void*, HostBlock> blocks_;
  std::string outcome_ = "not reached";
  std::string struck_;
  std::vector<std::string> violations_;
  std::vector<std::string> before_;
};

}  // namespace commpool::cli
