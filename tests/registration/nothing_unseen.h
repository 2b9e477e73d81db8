// In a test that includes this NCCL registers no memory by itself: pools that are registered may sleep then. Programs
// set the same before they use NCCL. A test may be started with other values.
#pragma once

#include <cstdlib>

namespace commpool::internal::testing {

[[maybe_unused]] inline const bool kNothingUnseen =
    setenv("NCCL_LOCAL_REGISTER", "0", 0) == 0 && setenv("NCCL_GRAPH_REGISTER", "0", 0) == 0;

}  // namespace commpool::internal::testing
