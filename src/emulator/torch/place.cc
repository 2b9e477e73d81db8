#include "src/emulator/torch/place.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/emulator/torch/emulator.h"
#include "src/emulator/torch/python_frames.h"

namespace commpool::internal::emulated_torch {

namespace {

// The places of forward operations by the nodes that they made. A new one takes the room of one that is old by then.
class ForwardPlaces {
 public:
  static ForwardPlaces& Get() {
    static auto* const places = new ForwardPlaces;
    return *places;
  }

  // The first operation after a node was made is the node's own.
  void Note(uint64_t thread, uint64_t node, const char* place) {
    Entry& entry = At(thread, node);
    const uint64_t key = KeyOf(thread, node);
    if (entry.key.exchange(key, std::memory_order_acq_rel) != key) entry.place.store(place, std::memory_order_release);
  }

  const char* Find(uint64_t thread, uint64_t node) {
    Entry& entry = At(thread, node);
    return entry.key.load(std::memory_order_acquire) == KeyOf(thread, node) ? entry.place.load() : nullptr;
  }

 private:
  struct Entry {
    std::atomic<uint64_t> key = 0;
    std::atomic<const char*> place = nullptr;
  };
  static constexpr size_t kEntries = 1 << 16;

  static uint64_t KeyOf(uint64_t thread, uint64_t node) { return (thread << 48) ^ (node + 1); }
  Entry& At(uint64_t thread, uint64_t node) { return entries_[(node + thread * 977) % kEntries]; }

  std::array<Entry, kEntries> entries_;
};

// Returns "the backward of " and the place, as a text that stays.
const char* BackwardOf(const char* place) {
  static std::mutex mutex;
  static auto* const texts = new std::map<const char*, std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string& text = (*texts)[place];
  if (text.empty()) text = std::string("the backward of ") + place;
  return text.c_str();
}

const char* PlaceOfThisCall() {
  const auto node = torch::autograd::get_current_node();
  if (node) {
    const char* const forward = ForwardPlaces::Get().Find(node->thread_id(), node->sequence_nr());
    if (forward != nullptr) return BackwardOf(forward);
  }
  const char* const place = PythonPlace();
  const uint64_t next = at::sequence_number::peek();
  if (!node && place != nullptr && next != 0) {
    ForwardPlaces::Get().Note(at::RecordFunction::currentThreadId(), next - 1, place);
  }
  return place;
}

}  // namespace

PlaceScope::PlaceScope() {
  if (LooksForRaces()) before_ = TheEmulator().issued_at(PlaceOfThisCall());
}

PlaceScope::~PlaceScope() {
  if (LooksForRaces()) TheEmulator().issued_at(before_);
}

}  // namespace commpool::internal::emulated_torch
