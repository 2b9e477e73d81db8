// The pools of a random program. Made and ended by one thread; between that any thread uses them.
#pragma once

#include <nccl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tools/stress/order/machine.h"

namespace commpool::cli::stress_order {

// Of pools with peers there are three: a stream of another device asks for blocks, or is recorded, or both. Of pinned
// ones two: with kNoStream blocks come without a stream too.
enum class PoolKind {
  kFixed,
  kExpandable,
  kSymmetric,
  kHostPinned,
  kNoStream,
  kHostNode,
  kPeerAsked,
  kPeerRecorded,
  kPeer
};

extern const std::map<std::string, PoolKind> kPoolKinds;

struct OrderPool {
  PoolKind kind = PoolKind::kFixed;
  std::string name;
  commpool_pool handle = 0;
  int device = 0;
  std::vector<int> asking;  // the devices whose streams ask for blocks
  std::vector<int> using_;  // the devices whose streams use them
  // Default streams mean the pool's device, whatever device is current.
  bool own_device_alone = false;
  bool outlive = false;         // streams that are passed to it are promised
  bool ordered = false;         // ORDERED frees
  bool without_stream = false;  // serves blocks for NO_STREAM
  bool sleeps = false;
  bool captures = false;
  bool shares = false;
  size_t group = SIZE_MAX;            // of a symmetric pool
  std::atomic<uint64_t> discards{0};  // how often a sleep has dropped the contents of its blocks
};

// The pools of the ranks of one symmetric pool.
struct OrderGroup {
  std::vector<size_t> pools;  // by rank
  std::vector<commpool_pool> handles;
  std::mutex sequence;  // held while all ranks make the same call
};

class OrderPools {
 public:
  // kNotSupported where the machine cannot have such pools; else OK, or what went wrong. Makes none to stay.
  static Status Try(Machine& machine, PoolKind kind);
  // Makes some pools of those kinds over the first devices.
  static Result<std::unique_ptr<OrderPools>> Make(Machine& machine, std::mt19937_64& random, int devices,
                                                  const std::vector<PoolKind>& kinds);
  ~OrderPools();
  OrderPools(const OrderPools&) = delete;
  OrderPools& operator=(const OrderPools&) = delete;

  size_t size() const { return pools_.size(); }
  OrderPool& operator[](size_t pool) { return *pools_[pool]; }
  OrderGroup& group(size_t group) { return *groups_[group]; }
  int devices() const { return devices_; }
  std::string Describe() const;
  // The books of every pool; a fault in them ends the process.
  void CheckInvariants() const;
  // Gives all memory back. Violations where blocks or memory are left.
  void Close(uint64_t step);

 private:
  OrderPools(Machine& machine, int devices) : machine_(machine), devices_(devices) {}
  Status Make(std::mt19937_64& random, PoolKind kind);
  Status MakeSymmetric(std::mt19937_64& random);
  void Trim(const OrderPool& pool, uint64_t step);

  Machine& machine_;
  const int devices_;
  std::vector<std::unique_ptr<OrderPool>> pools_;
  std::vector<std::unique_ptr<OrderGroup>> groups_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace commpool::cli::stress_order
