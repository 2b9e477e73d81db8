// PoolGroup: the pools of several ranks that one thread owns (ncclCommInitAll), for its collective calls.
//
//   std::vector<PoolOptions> options(devices);   // each with its device and its rank's communicator
//   PoolGroup pools = PoolGroup::create(options).value();
//   pools.reserve(GiB(1)).or_throw();
//   Buffer gradients = pools[0].allocate(bytes, stream).value();
//   pools.close().or_throw();
//
// Or several pools of one rank: reserve, reclaim and verify then need the rounds of one pool, and all go or none.
//
// Header-only, over the C ABI; compiles as C++17. A method documents only what commpool.h does not say of its function.
#ifndef COMMPOOL_POOL_GROUP_H_
#define COMMPOOL_POOL_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

class PoolGroup {
 public:
  static Result<PoolGroup> create(const std::vector<PoolOptions>& options) {
    std::vector<commpool_pool_options> c_options;
    for (const PoolOptions& one : options) c_options.push_back(Pool::ToC(one));
    std::vector<commpool_pool> handles(options.size());
    // An empty group calls the library too, for its error. A null pointer would hide that error behind another one.
    const commpool_pool_options none = Pool::ToC({});
    commpool_pool unused = 0;
    Status status = detail::FromC(commpool_pools_create(options.empty() ? &none : c_options.data(), options.size(),
                                                        options.empty() ? &unused : handles.data()));
    if (!status.ok()) return status;
    return PoolGroup(std::move(handles));
  }

  std::size_t size() const { return pools_.size(); }
  // Do not make collective calls on one pool: they wait for the other ranks. Make the group's call.
  Pool& operator[](std::size_t rank) { return pools_[rank]; }

  Status reserve(std::uint64_t bytes) {
    return detail::FromC(commpool_pools_reserve(handles_.data(), handles_.size(), bytes));
  }
  // Of each pool.
  Result<std::vector<std::uint64_t>> reclaim() {
    std::vector<std::uint64_t> bytes(handles_.size());
    Status status = detail::FromC(commpool_pools_reclaim(handles_.data(), handles_.size(), bytes.data()));
    if (!status.ok()) return status;
    return bytes;
  }
  Result<std::vector<std::uint64_t>> trim(std::uint64_t keep_bytes = 0) {
    std::vector<std::uint64_t> bytes(handles_.size());
    Status status = detail::FromC(commpool_pools_trim(handles_.data(), handles_.size(), keep_bytes, bytes.data()));
    if (!status.ok()) return status;
    return bytes;
  }

  // One communicator for each pool, of its rank, or null.
  Status register_with(const std::vector<Communicator>& communicators) {
    return WithCommunicators(commpool_pools_register_with, communicators);
  }
  Status deregister(const std::vector<Communicator>& communicators) {
    return WithCommunicators(commpool_pools_deregister, communicators);
  }
  Status rehome(const std::vector<Communicator>& communicators) {
    return WithCommunicators(commpool_pools_rehome, communicators);
  }

  // One registrar for each pool, or null.
  Status add_registrar(const std::vector<const commpool_registrar*>& registrars) {
    if (registrars.size() != handles_.size()) return WrongCount(registrars.size(), "registrars");
    return detail::FromC(commpool_pools_add_registrar(handles_.data(), registrars.data(), handles_.size()));
  }
  Status remove_registrar(const std::string& name) {
    return detail::FromC(commpool_pools_remove_registrar(handles_.data(), handles_.size(), name.c_str()));
  }

  Status map_peers() { return detail::FromC(commpool_pools_map_peers(handles_.data(), handles_.size())); }

  Status verify() { return detail::FromC(commpool_pools_verify(handles_.data(), handles_.size())); }
  template <typename Word, typename = std::enable_if_t<std::is_same_v<Word, Keep>>>
  Status sleep(Word keep, LiveGraphs graphs = LiveGraphs::kRefused) {
    return detail::FromC(commpool_pools_sleep(handles_.data(), handles_.size(), static_cast<commpool_keep>(keep),
                                              static_cast<commpool_graphs>(graphs)));
  }
  Status sleep(const SleepOptions& options = {}) {
    const commpool_sleep_options c_options = detail::ToC(options);
    return detail::FromC(commpool_pools_sleep_keeping(handles_.data(), handles_.size(), &c_options));
  }
  Status wake(LiveGraphs graphs = LiveGraphs::kRefused) {
    return detail::FromC(commpool_pools_wake(handles_.data(), handles_.size(), static_cast<commpool_graphs>(graphs),
                                             COMMPOOL_RETAIN_AS_BEFORE));
  }
  Status close() { return detail::FromC(commpool_pools_close(handles_.data(), handles_.size())); }

 private:
  explicit PoolGroup(std::vector<commpool_pool> handles) : handles_(std::move(handles)) {
    for (const commpool_pool handle : handles_) pools_.push_back(Pool(handle, Pool::Owner::kProgram));
  }

  Status WithCommunicators(commpool_status (*call)(const commpool_pool*, ncclComm* const*, std::size_t),
                           const std::vector<Communicator>& communicators) {
    if (communicators.size() != handles_.size()) return WrongCount(communicators.size(), "communicators");
    return detail::FromC(call(handles_.data(), communicators.data(), handles_.size()));
  }
  Status WrongCount(std::size_t count, const char* what) const {
    return Status(StatusCode::kInvalidArgument,
                  "a group of " + std::to_string(handles_.size()) + " pools and " + std::to_string(count) + " " + what);
  }

  std::vector<commpool_pool> handles_;
  std::vector<Pool> pools_;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_POOL_GROUP_H_
