// Which PyTorch this is compiled for. PyTorch's allocator class changes with each minor version, so each binary serves
// one.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_VERSIONS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_VERSIONS_H_

#include <torch/version.h>

#define COMMPOOL_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

#if !COMMPOOL_TORCH_AT_LEAST(9)
#error "commpool's router knows PyTorch from 2.9 on"
#endif

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_VERSIONS_H_
