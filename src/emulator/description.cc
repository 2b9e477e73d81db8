#include "src/emulator/description.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "src/emulator/named_machines.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::internal::emulator {

const std::vector<KnownKey>& KnownKeys() {
  static const std::vector<KnownKey> keys = {
      {"machine", "four", "a machine by name, which sets other keys: four, one, two, eight, islands, grace, or apart"},
      {"devices", "4", "number of GPUs"},
      {"memory", "141GiB", "memory of each GPU (an H200's)"},
      {"numa_nodes", "2", "host NUMA nodes; device d is nearest to node d * numa_nodes / devices"},
      {"host_memory", "256GiB", "memory of each NUMA node"},
      {"links", "all", "which GPUs reach each other: all, none, ring (neighbours only), or islands (two halves)"},
      {"coherent", "no", "yes: GPUs are NUMA nodes, and use the host's memory coherently, as beside a Grace CPU"},
      {"granularity", "2MiB", "minimum and recommended allocation granularity, and multicast's minimum"},
      {"fabric", "denied", "fabric handles: no (attribute 0), denied (attribute 1, no IMEX channel), or yes"},
      {"host_numa", "yes",
       "memory of host NUMA nodes by cuMemCreate: no (attribute 0), denied (attribute 1, and refused), or yes"},
      {"multicast", "yes", "whether devices say that they support NVLink multicast"},
      {"multicast_granularity", "granularity", "minimum of multicast, where it is not that of allocations"},
      {"rdma", "yes", "GPUDirect RDMA with VMM memory"},
      {"nccl", "2.28.9", "the NCCL release to pose as"},
      {"windows", "yes", "no: ncclCommWindowRegister succeeds with a null window, as without NVLink"},
      {"hosts", "apart",
       "how ranks of several hosts have windows: apart (not at all), network (by NCCL's proxies, from 2.29.2 on), or "
       "linked (by NVLink, as on one host)"},
      {"nccl_timeout_ms", "60000", "how long a missing rank is waited for before it is reported"},
      {"seed", "1", "of the scheduler that picks among ready streams"},
      {"races", "yes", "whether accesses that nothing orders are looked for"},
      {"kernels", "later",
       "when PyTorch's operations run: later (in the order of their streams), now (before the call returns), or none"},
      {"ranks", "all",
       "which ranks of a communicator run: all, or one, and the others answer as it does (kernels=none)"},
      {"fail", "", "faults, separated by +: CALL:SKIP:RESULT or CALL:SKIP:RESULT:COUNT"},
      {"report", "none", "exit: print leaks to stderr when the process ends"},
  };
  return keys;
}

namespace {

Status Unreadable(const std::string& key, const std::string& value, const std::string& expected) {
  return Status(StatusCode::kInvalidArgument, "COMMPOOL_EMULATOR: " + key + "=" + value + " is not " + expected);
}

bool ReadNumber(const std::string& text, uint64_t& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::vector<std::string> Split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find_first_of(separators, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

// Accepts "2.28.9" and "2.28".
bool IsRelease(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ".");
  uint64_t number = 0;
  const auto is_part = [&](const std::string& part) { return ReadNumber(part, number) && number < 100; };
  return (parts.size() == 2 || parts.size() == 3) && std::all_of(parts.begin(), parts.end(), is_part);
}

Result<DeclaredFault> ParseFault(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ":");
  uint64_t numbers[3] = {0, 0, 1};
  bool readable = parts.size() == 3 || parts.size() == 4;
  for (size_t index = 1; readable && index < parts.size(); ++index)
    readable = ReadNumber(parts[index], numbers[index - 1]);
  if (!readable) return Unreadable("fail", text, "CALL:SKIP:RESULT or CALL:SKIP:RESULT:COUNT");
  return DeclaredFault{parts[0], static_cast<int>(numbers[0]), static_cast<int>(numbers[1]),
                       static_cast<int>(numbers[2])};
}

// Accepts "GPU-" and enough digits to tell the device from the others, as cuDeviceGetUuid writes them.
std::optional<int> DeviceByUuid(const std::string& text, int devices) {
  std::optional<int> found;
  for (int number = 0; number < devices; ++number) {
    if (UuidText(number).compare(0, text.size(), text) != 0) continue;
    if (found.has_value()) return std::nullopt;
    found = number;
  }
  return found;
}

std::optional<int> VisibleDevice(std::string text, int devices) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  if (text.starts_with("GPU-")) return DeviceByUuid(text, devices);
  uint64_t number = 0;
  if (!ReadNumber(text, number) || number >= static_cast<uint64_t>(devices)) return std::nullopt;
  return static_cast<int>(number);
}

}  // namespace

std::string UuidText(int number) {
  char text[48];
  std::snprintf(text, sizeof(text), "GPU-%02x000000-0000-0000-0000-000000000000", number + 1);
  return text;
}

Result<Description> Description::Parse(const std::string& text, const char* visible) {
  Description description;
  for (const KnownKey& key : KnownKeys()) description.values_[key.name] = key.default_value;
  // Twice: the first time only to learn the machine's name, whose keys come before the others wherever it stands.
  COMMPOOL_TRY(description.Take(text));
  const std::string name = description.values_["machine"];
  const auto machines = NamedMachines();
  const auto machine =
      std::find_if(machines.begin(), machines.end(), [&](const NamedMachine& known) { return known.name == name; });
  if (machine == machines.end()) return Unreadable("machine", name, "a known machine (src/emulator/reference.md)");
  COMMPOOL_TRY(description.Take(machine->keys));
  COMMPOOL_TRY(description.Take(text));
  COMMPOOL_TRY(description.Interpret());
  description.Hide(visible);
  return description;
}

Status Description::Take(const std::string& text) {
  for (const std::string& pair : Split(text, ",; ")) {
    const size_t equals = pair.find('=');
    const std::string key = pair.substr(0, equals);
    if (equals == std::string::npos || !values_.contains(key)) {
      std::string known;
      for (const KnownKey& one : KnownKeys()) known += (known.empty() ? "" : ", ") + std::string(one.name);
      return Status(StatusCode::kInvalidArgument,
                    "COMMPOOL_EMULATOR: \"" + pair + "\" is no key=value of a known key; the keys are " + known);
    }
    values_[key] = pair.substr(equals + 1);
  }
  return Status();
}

Result<Description> Description::OfEnvironment() {
  const char* const text = std::getenv("COMMPOOL_EMULATOR");
  return Parse(text == nullptr ? "" : text, std::getenv("CUDA_VISIBLE_DEVICES"));
}

Status Description::Interpret() {
  const auto number = [&](const std::string& key, uint64_t least, uint64_t most, auto& output) {
    uint64_t value = 0;
    if (!ReadNumber(values_[key], value) || value < least || value > most) {
      return Unreadable(key, values_[key], "a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    output = static_cast<std::remove_reference_t<decltype(output)>>(value);
    return Status();
  };
  const auto size = [&](const std::string& key, uint64_t& output) {
    Result<uint64_t> bytes = ParseBytes(values_[key]);
    if (!bytes.ok()) return Unreadable(key, values_[key], "a size");
    output = *bytes;
    return Status();
  };
  const auto choice = [&](const std::string& key, const std::vector<std::string>& choices) {
    for (const std::string& allowed : choices) {
      if (values_[key] == allowed) return Status();
    }
    return Unreadable(key, values_[key], "one of its choices (src/emulator/reference.md)");
  };
  for (const Status& status :
       {number("devices", 1, 64, all_devices_), number("numa_nodes", 1, 64, numa_nodes_),
        number("seed", 0, UINT64_MAX, seed_), size("memory", device_bytes_), size("host_memory", host_bytes_),
        size("granularity", granularity_), choice("links", {"all", "none", "ring", "islands"}),
        choice("coherent", {"yes", "no"}), choice("fabric", {"no", "denied", "yes"}),
        choice("host_numa", {"no", "denied", "yes"}), choice("multicast", {"yes", "no"}), choice("rdma", {"yes", "no"}),
        choice("windows", {"yes", "no"}), choice("hosts", {"apart", "network", "linked"}),
        choice("races", {"yes", "no"}), choice("report", {"none", "exit"}), choice("ranks", {"all", "one"})}) {
    if (!status.ok()) return status;
  }
  if (!IsPowerOfTwo(granularity_) || granularity_ < 65536) {
    return Unreadable("granularity", values_["granularity"], "a power of two of at least 64KiB");
  }
  multicast_granularity_ = granularity_;
  if (values_["multicast_granularity"] != "granularity") {
    const Status status = size("multicast_granularity", multicast_granularity_);
    if (!status.ok()) return status;
    if (!IsPowerOfTwo(multicast_granularity_) || multicast_granularity_ < granularity_) {
      return Unreadable("multicast_granularity", values_["multicast_granularity"],
                        "a power of two, at least granularity");
    }
  }
  if (values_["ranks"] == "one" && computes()) {
    return Unreadable("ranks", "one", "possible without kernels=none: absent ranks have no data");
  }
  if (!IsRelease(values_["nccl"])) return Unreadable("nccl", values_["nccl"], "a release like 2.28.9");
  device_bytes_ = RoundDown(device_bytes_, granularity_);
  host_bytes_ = RoundDown(host_bytes_, granularity_);
  for (const std::string& text : Split(values_["fail"], "+")) {
    Result<DeclaredFault> fault = ParseFault(text);
    if (!fault.ok()) return fault.status();
    faults_.push_back(*fault);
  }
  return Status();
}

// Follows the driver: an entry that names no device hides everything after it, and a device that is named twice hides
// all.
void Description::Hide(const char* visible) {
  numbers_.resize(static_cast<size_t>(all_devices_));
  std::iota(numbers_.begin(), numbers_.end(), 0);
  visible_ = all_devices_;
  if (visible == nullptr) return;
  std::vector<int> seen;
  for (const std::string& entry : Split(visible, ",")) {
    const std::optional<int> number = VisibleDevice(entry, all_devices_);
    if (!number.has_value()) break;
    if (std::find(seen.begin(), seen.end(), *number) != seen.end()) {
      seen.clear();
      break;
    }
    seen.push_back(*number);
  }
  visible_ = static_cast<int>(seen.size());
  std::stable_sort(numbers_.begin(), numbers_.end(), [&](int a, int b) {
    return std::find(seen.begin(), seen.end(), a) < std::find(seen.begin(), seen.end(), b);
  });
}

int Description::DeviceOf(int number) const {
  return static_cast<int>(std::find(numbers_.begin(), numbers_.end(), number) - numbers_.begin());
}

const char* Description::Value(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second.c_str();
}

bool Description::Linked(int device, int peer) const {
  if (device == peer) return true;
  const std::string& links = values_.at("links");
  if (links == "all") return true;
  if (links == "none") return false;
  const auto island = [&](int one) { return NumberOf(one) * 2 / all_devices_; };
  if (links == "islands") return island(device) == island(peer);
  const int distance = std::abs(NumberOf(device) - NumberOf(peer));
  return distance == 1 || distance == all_devices_ - 1;
}

}  // namespace commpool::internal::emulator
