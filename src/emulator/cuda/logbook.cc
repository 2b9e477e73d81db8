#include "src/emulator/cuda/logbook.h"

#include <cstdio>
#include <utility>

#include "src/emulator/cuda/call_stack.h"

namespace commpool::internal::emulator {

Logbook::Logbook(const Description& description) : faults_(description.faults().begin(), description.faults().end()) {}

std::optional<int> Logbook::Enter(const std::string& call) {
  ++counts_[call];
  ++counts_["*"];
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->call != call) continue;
    if (fault->skip > 0) {
      --fault->skip;
      continue;
    }
    const int result = fault->result;
    if (--fault->count == 0) faults_.erase(fault);
    return result;
  }
  return std::nullopt;
}

uint64_t Logbook::Count(const std::string& call) const {
  const auto found = counts_.find(call);
  return found == counts_.end() ? 0 : found->second;
}

void Logbook::Note(const std::string& kind, const void* identity, const std::string& description) {
  resources_[{kind, identity}] = kind + ": " + description;
}

void Logbook::Forget(const std::string& kind, const void* identity) { resources_.erase({kind, identity}); }

std::vector<std::string> Logbook::Resources() const {
  std::vector<std::string> lines;
  for (const auto& [key, line] : resources_) lines.push_back(line);
  return lines;
}

void Logbook::Hold(CUdeviceptr address, uint64_t bytes, const std::string& holder) {
  held_.push_back({address, bytes, holder});
}

void Logbook::Unhold(CUdeviceptr address, uint64_t bytes) {
  for (auto held = held_.begin(); held != held_.end(); ++held) {
    if (held->address != address || held->bytes != bytes) continue;
    held_.erase(held);
    return;
  }
}

std::optional<std::string> Logbook::HolderOf(CUdeviceptr address, uint64_t bytes) const {
  for (const Held& held : held_) {
    if (address < held.address + held.bytes && held.address < address + bytes) return held.holder;
  }
  return std::nullopt;
}

void Logbook::Report(const std::string& rule, const std::string& details) {
  std::string report = rule + (details.empty() ? "" : ": ") + details;
  // The place where an operation was issued says more than the place where the emulator noticed the problem.
  const bool placed = details.find("issued at ") != details.npos || details.find("allocated at ") != details.npos;
  if (!placed) report += "; noticed in " + CallStack::Capture().Describe();
  std::fprintf(stderr, "commpool emulator: broken rule: %s\n", report.c_str());
  reports_.push_back(std::move(report));
}

}  // namespace commpool::internal::emulator
