// How two devices are linked, as `commpool info` tells it.
#pragma once

#include "src/library/driver/loader.h"

namespace commpool::internal {

// How a device uses the memory of another one.
struct Link {
  enum class Kind {
    kNone,
    kAccess,   // loads and stores, as over PCIe
    kAtomics,  // atomic operations too, as over NVLink
  };
  Kind kind = Kind::kNone;
  int rank = 0;  // the driver's order of the links by their speed: 0 is the fastest
};

// Of two different devices. kNone where the driver knows of no link.
Link LinkBetween(const Driver& driver, int device, int peer);

}  // namespace commpool::internal
