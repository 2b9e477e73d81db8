// Faults of the library that `commpool_stress ranks` plants, to show that it finds such faults. Values.
#pragma once

#include <map>
#include <string>

namespace commpool::cli::stress_ranks {

enum class Plant {
  kNone,
  kDroppedVerdict,  // rank 0 sends none of its messages
  kWrongName,       // a healthy rank's errors name itself instead of the missing one
  kEndlessWait,     // a healthy rank waits beyond every deadline
  kUnequalState,    // a healthy rank makes an allocation that the others do not make
  kLeak,            // a healthy rank keeps memory of the device
  kOutlive          // a healthy rank's process does not end
};

inline const std::map<std::string, Plant> kPlants = {{"dropped-verdict", Plant::kDroppedVerdict},
                                                     {"wrong-name", Plant::kWrongName},
                                                     {"endless-wait", Plant::kEndlessWait},
                                                     {"unequal-state", Plant::kUnequalState},
                                                     {"leak", Plant::kLeak},
                                                     {"outlive", Plant::kOutlive}};

}  // namespace commpool::cli::stress_ranks
