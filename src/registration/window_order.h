// In which order the windows of a communicator come back to their places after all of them have ended. Pure.
#ifndef COMMPOOL_SRC_REGISTRATION_WINDOW_ORDER_H_
#define COMMPOOL_SRC_REGISTRATION_WINDOW_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/registration/window_layout.h"

namespace commpool::internal {

struct PlacedWindow {
  uint64_t bytes = 0;
  WindowSpot spot;
};

struct WindowStep {
  enum class Act { kRegister, kEnd };
  Act act = Act::kRegister;
  size_t window = 0;  // its place in the list
  bool operator==(const WindowStep&) const = default;
};

// Steps after which each window is registered at its spot, from a layout in which none of them is. A window may be
// registered elsewhere for a while, where it fills a gap that NCCL would give to another one. Nothing where the search
// finds no steps: it gives up after a bounded number of tries. The same on every rank that passes the same.
std::optional<std::vector<WindowStep>> FindWindowOrder(const WindowLayout& layout,
                                                       const std::vector<PlacedWindow>& windows);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_WINDOW_ORDER_H_
