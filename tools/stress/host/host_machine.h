// What one run of `commpool_stress host` stands on: the runtime behind the C ABI, streams and communicators of emulated
// devices, the calls that the run makes, and what it found wrong.
//
// One thread.
#ifndef COMMPOOL_TOOLS_STRESS_HOST_HOST_MACHINE_H_
#define COMMPOOL_TOOLS_STRESS_HOST_HOST_MACHINE_H_

#include <cuda.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "src/driver/loader.h"

namespace commpool::cli {

struct HostBlock {
  uint64_t bytes = 0;
  commpool_pool pool = 0;
  CUstream stream = nullptr;
};

class HostMachine {
 public:
  // The driver is an emulated one.
  HostMachine(std::shared_ptr<const internal::Driver> driver, int devices);
  ~HostMachine();
  HostMachine(const HostMachine&) = delete;
  HostMachine& operator=(const HostMachine&) = delete;

  const internal::Driver& driver() const { return *driver_; }
  CUstream stream(int device, size_t number) const { return streams_[static_cast<size_t>(device)][number]; }
  void UseDevice(int device) const;
  // A communicator of all devices, one handle each, as a thread that owns all ranks makes them.
  std::vector<ncclComm_t> MakeCommunicators();

  // Makes a call of the library. Where the fault strikes in it: it failed for a stated reason or served all the same,
  // nothing has changed, and made again it does what it should.
  using Call = std::function<commpool_status()>;
  void Make(const std::string& name, const Call& call, commpool_status expected = COMMPOOL_OK);

  // The program's own books: what Make compares with the library's.
  void Know(commpool_pool pool) { pools_.push_back(pool); }
  void Forget(commpool_pool pool) { std::erase(pools_, pool); }
  void* Allocate(commpool_pool pool, uint64_t bytes, CUstream stream);
  // The same through the open scopes, of which one leads to `pool`.
  void* AllocateScoped(int device, commpool_pool pool, uint64_t bytes, CUstream stream);
  void Free(void* pointer);

  void Violate(const std::string& what);
  // Ends the runtime. What is wrong, a line each.
  std::vector<std::string> Finish();
  // "refused", "served", or "not reached".
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

#endif  // COMMPOOL_TOOLS_STRESS_HOST_HOST_MACHINE_H_
