#include "tools/stress/ranks/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/newer_nccl.h"

namespace commpool::cli::stress_ranks {

namespace {

std::string ToHex(const ncclUniqueId& id) {
  std::string hex;
  for (const char byte : id.internal) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

ncclUniqueId FromHex(const std::string& hex) {
  ncclUniqueId id = {};
  for (size_t index = 0; index < NCCL_UNIQUE_ID_BYTES && 2 * index + 1 < hex.size(); ++index) {
    id.internal[index] = static_cast<char>(std::stoi(hex.substr(2 * index, 2), nullptr, 16));
  }
  return id;
}

}  // namespace

Status Communicators::Make() {
  world_ = COMMPOOL_TRY(Join("world", schedule_.HomeOf(0, rank_)));
  second_ = COMMPOOL_TRY(MakeSecond());
  return Status();
}

Result<ncclComm_t> Communicators::MakeSecond() {
  const std::vector<int> members = schedule_.SecondOf(rank_);
  switch (schedule_.second) {
    case Second::kJoined:
      return members.empty() ? Result<ncclComm_t>(nullptr) : Join("second", members);
    case Second::kSplit:
      return Await("ncclCommSplit", [&](ncclComm_t* made, ncclConfig_t* config) {
        return driver_.nccl.ncclCommSplit(world_, rank_ % 2, rank_, made, config);
      });
    case Second::kShrunk:
      if (members.empty()) return nullptr;
      return Await("ncclCommShrink", [&](ncclComm_t* made, ncclConfig_t* config) {
        int left_out = 0;
        return driver_.nccl.ncclCommShrink(world_, &left_out, 1, made, config, NCCL_SHRINK_DEFAULT);
      });
    case Second::kGrown:
      return Grow(members);
  }
  return nullptr;
}

Result<ncclComm_t> Communicators::Grow(const std::vector<int>& members) {
  const auto ranks = static_cast<int>(members.size());
  const bool is_new = rank_ == members.back();
  ncclComm_t parent = nullptr;
  ncclUniqueId id = {};
  if (!is_new) {
    parent = COMMPOOL_TRY(Join("parent", {members.begin(), members.end() - 1}));
  }
  if (rank_ == 0) {
    COMMPOOL_TRY(
        internal::CheckNccl(driver_, driver_.nccl.ncclCommGetUniqueId(parent, &id), {.call = "ncclCommGetUniqueId"}));
    Offer("grown", id);
  }
  if (is_new) id = Receive("grown");
  return Await("ncclCommGrow", [&](ncclComm_t* made, ncclConfig_t* config) {
    const bool brings_id = rank_ == 0 || is_new;
    return driver_.nccl.ncclCommGrow(parent, ranks, brings_id ? &id : nullptr, is_new ? rank_ : -1, made, config);
  });
}

Result<ncclComm_t> Communicators::Join(const std::string& name, const std::vector<int>& members) {
  ncclUniqueId id = {};
  if (members.front() == rank_) {
    COMMPOOL_TRY(internal::CheckNccl(driver_, driver_.nccl.ncclGetUniqueId(&id), {.call = "ncclGetUniqueId"}));
    Offer(name + std::to_string(rank_), id);
  } else {
    id = Receive(name + std::to_string(members.front()));
  }
  const auto place = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  return Await("ncclCommInitRankConfig", [&](ncclComm_t* made, ncclConfig_t* config) {
    return driver_.nccl.ncclCommInitRankConfig(made, static_cast<int>(members.size()), id, place, config);
  });
}

Result<ncclComm_t> Communicators::Await(const char* call,
                                        const std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>& make) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = schedule_.waiting == Waiting::kBlocking ? 1 : 0;
  ncclComm_t made = nullptr;
  ncclResult_t result = make(&made, &config);
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // NCCL offers nothing but polling
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = driver_.nccl.ncclCommGetAsyncError(made, &state);
    result = asked == ncclSuccess ? state : asked;
  }
  COMMPOOL_TRY(internal::CheckNccl(driver_, result, {.call = call, .device = rank_}));
  const std::scoped_lock lock(mutex_);
  all_.push_back(made);
  return made;
}

void Communicators::Offer(const std::string& name, const ncclUniqueId& id) {
  control_.Send("id " + name + " " + ToHex(id));
}

ncclUniqueId Communicators::Receive(const std::string& name) { return FromHex(control_.Await("id " + name)); }

void Communicators::Abort() {
  const std::scoped_lock lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  for (auto each = all_.rbegin(); each != all_.rend(); ++each) driver_.nccl.ncclCommAbort(*each);
  all_.clear();
}

bool Communicators::aborted() const {
  const std::scoped_lock lock(mutex_);
  return aborted_;
}

void Communicators::Destroy() {
  const std::scoped_lock lock(mutex_);
  for (auto each = all_.rbegin(); each != all_.rend(); ++each) driver_.nccl.ncclCommDestroy(*each);
  all_.clear();
}

}  // namespace commpool::cli::stress_ranks
