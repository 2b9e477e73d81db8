#include "src/interpose/audit/ledger.h"

#include <algorithm>

namespace commpool::audit {

const char* NameOf(What what) {
  switch (what) {
    case What::kMemory:
      return "memory";
    case What::kPhysical:
      return "memory (VMM)";
    case What::kArray:
      return "arrays";
    case What::kContext:
      return "context";
    case What::kCode:
      return "code";
    case What::kInPools:
      return "in memory pools";
    case What::kInGraphs:
      return "in graphs";
    case What::kManaged:
      return "managed memory";
    case What::kHostMemory:
      return "host memory";
    case What::kHostPinned:
      return "host memory, pinned";
    case What::kAddresses:
      return "addresses";
    case What::kMapping:
      return "mappings";
    case What::kAccess:
      return "access";
    case What::kExport:
      return "exports";
    case What::kImport:
      return "imports";
    case What::kOpened:
      return "opened memory";
    case What::kNcclMemory:
      return "ncclMemAlloc";
    case What::kRegistration:
      return "registrations";
    case What::kWindow:
      return "windows";
    case What::kProbe:
      return "probes (VMM)";
  }
  return "";
}

bool IsDeviceMemory(What what) {
  switch (what) {
    case What::kMemory:
    case What::kPhysical:
    case What::kArray:
    case What::kContext:
    case What::kCode:
      return true;
    default:
      return false;
  }
}

void Ledger::Change(const RowKey& key, int64_t bytes) {
  Row& row = rows_[key];
  row.bytes_now += bytes;
  row.bytes_peak = std::max(row.bytes_peak, row.bytes_now);
  if (IsDeviceMemory(key.what)) device_bytes_[key.device] += bytes;
}

void Ledger::Hold(uint64_t key, Holding holding, uint64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto bytes = static_cast<int64_t>(holding.bytes);
  Row& row = rows_[holding.row];
  ++row.made;
  row.bytes_made += bytes;
  row.made_ns += nanoseconds;
  Change(holding.row, bytes);
  const std::pair place(holding.row.what, key);
  const auto before = held_.find(place);
  if (before != held_.end()) Change(before->second.row, -static_cast<int64_t>(before->second.bytes));
  held_[place] = std::move(holding);
}

std::optional<Holding> Ledger::Take(What what, uint64_t key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = held_.find({what, key});
  if (found == held_.end()) return std::nullopt;
  Holding holding = std::move(found->second);
  held_.erase(found);
  return holding;
}

void Ledger::End(const Holding& holding, uint64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[holding.row];
  ++row.ended;
  row.ended_ns += nanoseconds;
  Change(holding.row, -static_cast<int64_t>(holding.bytes));
}

void Ledger::PutBack(uint64_t key, Holding holding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::pair place(holding.row.what, key);
  held_[place] = std::move(holding);
}

void Ledger::Count(const RowKey& key, int64_t bytes, uint64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[key];
  ++row.made;
  row.bytes_made += bytes;
  row.made_ns += nanoseconds;
  if (IsDeviceMemory(key.what)) Change(key, bytes);
}

void Ledger::Fail(const RowKey& key, uint64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[key];
  ++row.failed;
  row.made_ns += nanoseconds;
}

void Ledger::ForgetAll(What what, int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto next = held_.begin(); next != held_.end();) {
    const Holding& holding = next->second;
    const bool gone = holding.row.what == what && holding.row.device == device;
    if (gone) Change(holding.row, -static_cast<int64_t>(holding.bytes));
    next = gone ? held_.erase(next) : std::next(next);
  }
}

int64_t Ledger::DeviceBytes(int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = device_bytes_.find(device);
  return found == device_bytes_.end() ? 0 : found->second;
}

std::map<RowKey, Row> Ledger::Rows() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rows_;
}

std::vector<StackSum> Ledger::Stacks(size_t most) const {
  std::map<std::pair<RowKey, std::string>, StackSum> sums;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [place, holding] : held_) {
      if (holding.stack.empty()) continue;
      StackSum& sum = sums[{holding.row, holding.stack}];
      sum = {holding.row, holding.stack, sum.count + 1, sum.bytes + holding.bytes};
    }
  }
  std::vector<StackSum> largest;
  for (auto& [key, sum] : sums) largest.push_back(std::move(sum));
  std::sort(largest.begin(), largest.end(), [](const auto& one, const auto& other) { return one.bytes > other.bytes; });
  if (largest.size() > most) largest.resize(most);
  return largest;
}

}  // namespace commpool::audit
