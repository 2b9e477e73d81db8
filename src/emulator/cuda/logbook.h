// Keeps what tests ask the emulator for: the number of calls, injected faults, broken rules, and resources of the other
// emulated libraries. The machine's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/emulator/description.h"

namespace commpool::internal::emulator {

// Owns those counts and lists for this process. The machine holds it; every API function enters it.
class Logbook {
 public:
  explicit Logbook(const Description& description);

  // Counts a call. Returns the result of an injected fault, if this call has one.
  std::optional<int> Enter(const std::string& call);
  uint64_t Count(const std::string& call) const;
  void Inject(const DeclaredFault& fault) { faults_.push_back(fault); }
  void ClearFaults() { faults_.clear(); }

  void Note(const std::string& kind, const void* identity, const std::string& description);
  void Forget(const std::string& kind, const void* identity);
  std::vector<std::string> Resources() const;

  void Hold(CUdeviceptr address, uint64_t bytes, const std::string& holder);
  void Unhold(CUdeviceptr address, uint64_t bytes);
  // Returns who holds a part of the range; nothing if nobody does.
  std::optional<std::string> HolderOf(CUdeviceptr address, uint64_t bytes) const;

  // Adds the call stack of the program, unless `details` says already where operations were issued.
  void Report(const std::string& rule, const std::string& details);
  const std::vector<std::string>& reports() const { return reports_; }
  void ClearReports() { reports_.clear(); }

 private:
  struct Held {
    CUdeviceptr address;
    uint64_t bytes;
    std::string holder;
  };

  std::map<std::string, uint64_t> counts_;
  std::list<DeclaredFault> faults_;
  std::map<std::pair<std::string, const void*>, std::string> resources_;
  std::vector<Held> held_;
  std::vector<std::string> reports_;
};

}  // namespace commpool::internal::emulator
