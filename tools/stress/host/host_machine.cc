#include "tools/stress/host/host_machine.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "src/library/c_api/boundary.h"
#include "tools/common/pool_invariants.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/host/host_driver.h"
#include "tools/stress/host/host_faults.h"

namespace commpool::cli {

namespace {

constexpr size_t kStreams = 3;
void* const kUntouched = reinterpret_cast<void*>(0x5a5a);

void Require(int result, const char* call) {
  if (result != 0) throw std::runtime_error(std::string(call) + " failed: " + std::to_string(result));
}

}  // namespace

HostMachine::HostMachine(std::shared_ptr<const internal::Driver> driver, int devices) : driver_(std::move(driver)) {
  before_ = EmulatorLines(*driver_, "commpoolEmulatorLeaks");
  for (int device = 0; device < devices; ++device) {
    CUcontext context = nullptr;
    Require(driver_->cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    contexts_.push_back(context);
    UseDevice(device);
    std::vector<CUstream>& streams = streams_.emplace_back(kStreams);
    for (CUstream& stream : streams) {
      Require(driver_->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
  }
  UseDevice(0);
  internal::process_runtime.store(new internal::Runtime(DriverOutside(driver_)));
}

HostMachine::~HostMachine() = default;

void HostMachine::UseDevice(int device) const {
  Require(driver_->cuda.cuCtxSetCurrent(contexts_[static_cast<size_t>(device)]), "cuCtxSetCurrent");
}

std::vector<ncclComm_t> HostMachine::MakeCommunicators() {
  std::vector<ncclComm_t> made(contexts_.size());
  std::vector<int> devices;
  for (size_t device = 0; device < made.size(); ++device) devices.push_back(static_cast<int>(device));
  Require(driver_->nccl.ncclCommInitAll(made.data(), static_cast<int>(made.size()), devices.data()), "ncclCommInitAll");
  communicators_.insert(communicators_.end(), made.begin(), made.end());
  return made;
}

void HostMachine::Violate(const std::string& what) { violations_.push_back(what); }

void HostMachine::Make(const std::string& name, const Call& call, commpool_status expected) {
  const bool fired_before = HostFaults::fired();
  const auto make = [&] {
    const HostFaults::Inside inside;
    return call();
  };
  commpool_status status = make();
  if (HostFaults::fired() && !fired_before) {
    struck_ = name;
    outcome_ = status == expected ? "served" : "refused";
    if (status != expected) {
      const std::string why = commpool_last_error();
      if (status == COMMPOOL_OK || status == COMMPOOL_INTERNAL) {
        Violate(name + " ends with " + std::to_string(status) + " (" + why + ")");
      }
      if (why.empty()) Violate(name + " gives no reason");
      CheckBooks(name + " refused");
      status = make();
      if (status != expected) Violate(name + " made again: " + commpool_last_error());
    }
  } else if (status != expected) {
    Violate(name + ": " + (status == COMMPOOL_OK ? "succeeds" : commpool_last_error()));
  }
}

void* HostMachine::Serve(const std::string& name, commpool_pool pool, uint64_t bytes, CUstream stream,
                         const std::function<commpool_status(void**)>& call) {
  void* pointer = kUntouched;
  Make(name, [&] {
    if (pointer != kUntouched) Violate(name + " failed and wrote its output");
    return call(&pointer);
  });
  if (pointer == kUntouched) throw std::runtime_error(name + ": no block");
  const HostBlock block = {bytes, pool, stream};
  const auto after = blocks_.lower_bound(pointer);
  const bool below = after != blocks_.begin() &&
                     static_cast<char*>(std::prev(after)->first) + std::prev(after)->second.bytes > pointer;
  if (below || (after != blocks_.end() && static_cast<char*>(pointer) + bytes > after->first)) {
    Violate(name + " hands out what is in use");
  }
  blocks_[pointer] = block;
  Touch(pointer, block);
  CheckBooks(name);
  return pointer;
}

void* HostMachine::Allocate(commpool_pool pool, uint64_t bytes, CUstream stream) {
  return Serve("pool_allocate of " + std::to_string(bytes), pool, bytes, stream,
               [&](void** pointer) { return commpool_pool_allocate(pool, bytes, stream, pointer); });
}

void* HostMachine::AllocateScoped(int device, commpool_pool pool, uint64_t bytes, CUstream stream) {
  return Serve("allocate of " + std::to_string(bytes), pool, bytes, stream,
               [&](void** pointer) { return commpool_allocate(device, bytes, stream, pointer); });
}

void HostMachine::Free(void* pointer) {
  Touch(pointer, blocks_.at(pointer));
  const HostBlock block = blocks_.at(pointer);
  Make("free", [&] {
    const commpool_status status = commpool_free(pointer);
    // The books count the call as the library does, whether or not it is repeated.
    const HostFaults::Outside outside;
    if (status == COMMPOOL_OK) blocks_.erase(pointer);
    return status;
  });
  CheckBooks("free of " + std::to_string(block.bytes));
}

void HostMachine::Touch(void* pointer, const HostBlock& block) {
  const CUresult result =
      driver_->cuda.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(pointer), 0x11, block.bytes, block.stream);
  if (result != CUDA_SUCCESS) Violate("a block of " + std::to_string(block.bytes) + " bytes cannot be written");
}

void HostMachine::CheckBooks(const std::string& name) {
  for (const commpool_pool pool : pools_) CheckPool(name, pool);
}

void HostMachine::CheckPool(const std::string& name, commpool_pool pool) {
  CheckInvariants(*internal::OpenedProcessRuntime()->pools().Find(pool).value());
  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  if (commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics) != COMMPOOL_OK)
    return Violate(name + ": no statistics");
  uint64_t live = 0;
  uint64_t bytes = 0;
  for (const auto& [pointer, block] : blocks_) {
    if (block.pool != pool) continue;
    ++live;
    bytes += block.bytes;
    commpool_block found;
    if (commpool_block_of(pointer, &found, sizeof(found)) != COMMPOOL_OK || found.pointer != pointer) {
      Violate(name + ": a live block is not found");
    }
  }
  const uint64_t told = statistics.allocated_blocks.current;
  if (told != live || statistics.requested_bytes.current != bytes) {
    Violate(name + ": the books have " + std::to_string(told) + " blocks of " +
            std::to_string(statistics.requested_bytes.current) + " bytes, the program " + std::to_string(live) +
            " of " + std::to_string(bytes));
  }
  if (statistics.free_bytes + statistics.allocated_bytes.current != statistics.reserved_bytes.current) {
    Violate(name + ": free and allocated bytes are not what is reserved");
  }
}

std::vector<std::string> HostMachine::Finish() {
  delete internal::process_runtime.exchange(nullptr);
  for (const ncclComm_t communicator : communicators_) {
    if (driver_->nccl.ncclCommDestroy(communicator) != ncclSuccess) Violate("a communicator cannot be destroyed");
  }
  for (size_t device = 0; device < contexts_.size(); ++device) {
    UseDevice(static_cast<int>(device));
    for (const CUstream stream : streams_[device]) {
      if (driver_->cuda.cuStreamDestroy(stream) != CUDA_SUCCESS) Violate("a stream cannot be destroyed");
    }
    driver_->cuda.cuDevicePrimaryCtxRelease(static_cast<CUdevice>(device));
  }
  for (const std::string& report : EmulatorLines(*driver_, "commpoolEmulatorReports"))
    Violate("the emulator: " + report);
  for (const std::string& leak : EmulatorLines(*driver_, "commpoolEmulatorLeaks")) {
    if (std::find(before_.begin(), before_.end(), leak) == before_.end()) Violate("leak: " + leak);
  }
  return violations_;
}

}  // namespace commpool::cli
