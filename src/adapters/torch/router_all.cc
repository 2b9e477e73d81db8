// The router as one translation unit, so that a user's compiler reads PyTorch's headers once and needs only seconds.
#include "src/adapters/torch/allocation.cc"
#include "src/adapters/torch/failures.cc"
#include "src/adapters/torch/history.cc"
#include "src/adapters/torch/known_pools.cc"
#include "src/adapters/torch/router_device.cc"
#include "src/adapters/torch/scopes.cc"
#include "src/adapters/torch/segments.cc"
#include "src/adapters/torch/surface.cc"
