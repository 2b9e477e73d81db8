// Who made the calls that a symmetric pool compares between ranks: a Python function is told of each allocation of the
// pools that it watches, and says later which line made one. Null where nobody watches: a load for each routed
// allocation.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_CALL_LINES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_CALL_LINES_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "src/adapters/torch/surface.h"

namespace commpool::torch_adapter {

inline std::atomic<commpool_torch_on_call>& CallWatcher() {
  static std::atomic<commpool_torch_on_call> watcher{nullptr};
  return watcher;
}

inline std::atomic<commpool_torch_explain>& CallExplainer() {
  static std::atomic<commpool_torch_explain> explainer{nullptr};
  return explainer;
}

inline void TellWatcher(commpool_pool pool, uint64_t bytes) {
  if (const commpool_torch_on_call watcher = CallWatcher().load(std::memory_order_relaxed)) watcher(pool, bytes);
}

// A sentence with what Python knows of it: where the call that it names was made, what a user's function raised.
inline std::string Explained(commpool_pool pool, const std::string& sentence) {
  const commpool_torch_explain explainer = CallExplainer().load(std::memory_order_relaxed);
  if (explainer == nullptr) return sentence;
  char text[1024] = "";
  explainer(pool, sentence.c_str(), text, sizeof(text));
  return text[0] == '\0' ? sentence : sentence + ". " + text;
}

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_CALL_LINES_H_
