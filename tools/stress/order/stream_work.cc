#include "tools/stress/order/stream_work.h"

#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::cli::stress_order {

namespace {

constexpr uint64_t kWord = sizeof(uint32_t);
constexpr uint64_t kPlaceBytes = 2 * internal::kKiB;
constexpr uint64_t kPlaces = 4;
constexpr uint64_t kCopyBytes = kPlaces * kPlaceBytes;
constexpr size_t kMostCompared = 1024;  // a worker has 800 steps, and compares in few of them

std::vector<MemoryRange> PlacesIn(const MemoryRange& range) {
  const uint64_t words = range.bytes / kWord;
  if (words == 0) return {};
  if (words * kWord <= kCopyBytes) return {{range.address, words * kWord}};
  std::vector<MemoryRange> places;
  for (uint64_t place = 0; place < kPlaces; ++place) {
    const uint64_t first = (words - kPlaceBytes / kWord) * place / (kPlaces - 1);
    places.push_back({range.address + first * kWord, kPlaceBytes});
  }
  return places;
}

}  // namespace

StreamWork::StreamWork(Machine& machine) : machine_(machine) {
  machine_.MakeCurrent(0);
  Result<internal::PinnedMemory> copies = internal::PinnedMemory::Make(machine_.driver(), kMostCompared * kCopyBytes);
  if (copies.ok()) {
    copies_ = std::move(*copies);
  } else {
    machine_.Violate(0, copies.status().message());
  }
}

void StreamWork::Finish() const {
  for (int device = 0; device < machine_.devices(); ++device) {
    machine_.MakeCurrent(device);
    machine_.cuda().cuCtxSynchronize();
  }
}

Status StreamWork::Call(CUstream stream, std::function<void()> call) {
  const auto run = [](void* context) { (*static_cast<std::function<void()>*>(context))(); };
  calls_.push_back(std::move(call));
  return Check(machine_.cuda().cuLaunchHostFunc(stream, run, &calls_.back()), "cuLaunchHostFunc");
}

Status StreamWork::Fill(CUstream stream, const MemoryRange& range, uint32_t value) {
  if (range.bytes < kWord) return Status();
  return Check(machine_.cuda().cuMemsetD32Async(range.address, value, range.bytes / kWord, stream), "cuMemsetD32Async");
}

Status StreamWork::Compare(CUstream stream, const MemoryRange& range, uint32_t value, Wrong wrong) {
  if (!copies_.valid() || compared_ == kMostCompared) return Status(StatusCode::kExhausted, "no room for a copy");
  const CUdeviceptr copy = copies_.address() + compared_++ * kCopyBytes;
  const std::vector<MemoryRange> places = PlacesIn(range);
  CUdeviceptr to = copy;
  for (const MemoryRange& place : places) {
    COMMPOOL_TRY(Check(machine_.cuda().cuMemcpyAsync(to, place.address, place.bytes, stream), "cuMemcpyAsync"));
    to += place.bytes;
  }
  return Call(stream, [begin = range.address, value, wrong = std::move(wrong), copy, places] {
    const auto* word = reinterpret_cast<const uint32_t*>(copy);
    for (const MemoryRange& place : places) {
      for (uint64_t at = 0; at < place.bytes; at += kWord, ++word) {
        if (*word != value) return wrong(place.address - begin + at, *word);
      }
    }
  });
}

}  // namespace commpool::cli::stress_order
