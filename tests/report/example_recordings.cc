// Writes recordings of a program that was never run: ranks that allocate, agree and, with --differ, part.
// usage: example_recordings DIRECTORY RANKS EVENTS_OF_A_RANK [--differ | --expandable | --pools]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/report/recording_writer.h"

namespace commpool::internal::report {

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int64_t kStart = 5'000'000'000;
constexpr uint64_t kSegment = 64 * kMiB;
constexpr uint64_t kSlots = 4096;

enum class Kind { kPlain, kDiffering, kExpandable, kManyPools };

class Program {
 public:
  Program(const std::string& directory, int64_t rank, int64_t ranks, Kind kind)
      : rank_(rank), kind_(kind), writer_(directory, FactsOf(rank, ranks)) {}

  void Run(uint64_t events) {
    Begin();
    if (kind_ == Kind::kManyPools) return RunPools(events);
    std::vector<bool> live(kSlots);
    uint64_t state = 12345;
    for (uint64_t event = 0; event < events; ++event) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const uint64_t slot = (state >> 33) % kSlots;
      time_ += 1000;
      live[slot] ? Free(slot) : Serve(slot, state);
      live[slot] = !live[slot];
      if (event % 100'000 == 99'999) Count();
      if (event % 5000 == 4999) Agree();
    }
    Count();
  }

 private:
  // Pools of a block each, which live at once; as many segments of one pool, which NCCL knows before the pool.
  void RunPools(uint64_t pools) {
    for (uint64_t pool = 3; pool < pools + 3; ++pool) {
      const uint64_t address = Base() + kSlots * kMiB + pool * 2 * kMiB;
      const uint64_t name = writer_.Text("pool " + std::to_string(pool));
      writer_.Write(time_, recording::PoolMade{.pool = pool, .name = name});
      writer_.Write(time_, recording::SegmentMade{pool, 0, address, kMiB});
      writer_.Write(time_, recording::BlockServed{.pool = pool, .address = address, .bytes = kMiB, .requested = kMiB});
      const uint64_t other = address + kMiB;
      Register(other, kMiB, 0);
      writer_.Write(time_, recording::SegmentMade{2, 0, other, kMiB});
      time_ += 1000;
    }
    for (uint64_t pool = 3; pool < pools + 3; ++pool) writer_.Write(time_ += 1000, recording::PoolGone{pool});
  }
  static recording::ProcessFacts FactsOf(int64_t rank, int64_t ranks) {
    const auto number = static_cast<uint64_t>(rank);
    const uint64_t start = kStart + number * 1'000'000'000;
    const std::string host = "node" + std::to_string(rank / 8);
    return {rank, ranks, 1000 + number, 1'700'000'000'000'000'000, start, 1024 * kMiB, host, "train.py", ""};
  }

  void Begin() {
    time_ = kStart + rank_ * 1'000'000'000;
    const uint64_t mode = writer_.Text(kind_ == Kind::kExpandable ? "vmm, expandable" : "vmm, fixed");
    const uint64_t symmetric = writer_.Text("vmm, symmetric");
    const uint64_t activations = writer_.Text("activations");
    const uint64_t gradients = writer_.Text("gradients");
    writer_.Write(time_, recording::PoolMade{.pool = 1, .name = activations, .kind = mode, .device = 0});
    writer_.Write(time_, recording::PoolMade{2, 0, gradients, symmetric, 0, 77, 1});
    for (uint64_t segment = 0; segment < kSlots / 64; ++segment) {
      writer_.Write(time_, recording::SegmentMade{1, 0, Base() + segment * kSegment, kSegment});
    }
    writer_.Write(time_, recording::SegmentMade{2, 0, Base() / 2, kSegment});
    Register(Base() / 2, kSegment, 500);
  }
  static uint64_t Base() { return 0x7f0000000000; }
  void Register(uint64_t address, uint64_t bytes, uint64_t cost) {
    recording::Registered entry{.pool = 2, .address = address, .bytes = bytes, .communicator = 0xc0ffee};
    entry.cost = cost;
    writer_.Write(time_, entry);
  }

  void Serve(uint64_t slot, uint64_t state) {
    const uint64_t requested = (state >> 20) % kMiB + 1;
    const uint64_t bytes = (requested + 511) / 512 * 512;
    const std::string layer = std::to_string(slot % 50);
    const uint64_t stack = writer_.Text("model.py:1" + layer + " layer" + layer + "\ntrain.py:3 main");
    const uint64_t stream = 1 + slot % 2 * 0x7e00;
    writer_.Write(time_, recording::BlockServed{1, 0, Base() + slot * kMiB, bytes, requested, stream, stack});
    bytes_[slot] = {bytes, requested};
    allocated_ += bytes;
    requested_ += requested;
  }
  void Free(uint64_t slot) {
    writer_.Write(time_, recording::BlockFreed{Base() + slot * kMiB});
    allocated_ -= bytes_[slot].first;
    requested_ -= bytes_[slot].second;
  }
  void Count() {
    recording::PoolBytes bytes{.pool = 1, .reserved = kSlots / 64 * kSegment, .allocated = allocated_};
    bytes.requested = requested_;
    bytes.cached = 64 * 512;
    writer_.Write(time_, bytes);
    writer_.Write(time_, recording::SmallBlocks{.pool = 1, .bytes = 512, .served = 1000, .cached = 64});
  }
  void Agree() {
    ++agreements_;
    const uint64_t text = writer_.Text("reserve of 4 MiB");
    const uint64_t call = writer_.Text("allocate");
    const bool differs = kind_ == Kind::kDiffering && rank_ == 1 && agreements_ >= 18;
    writer_.Write(time_, recording::Call{2, agreements_ - 1, call, differs ? 131'072u : 65'536u});
    recording::SpanBegan began{.span = agreements_, .pool = 2, .text = text, .home = 77, .number = agreements_};
    const int64_t late = rank_ == 1 ? 400 : rank_ % 7;
    writer_.Write(time_ + late, began);
    time_ += 500 + rank_ % 5;
    writer_.Write(time_, recording::SpanEnded{agreements_, 0});
    time_ += 10 - rank_ % 5;
  }

  int64_t rank_;
  Kind kind_;
  RecordingWriter writer_;
  int64_t time_ = 0;
  uint64_t allocated_ = 0;
  uint64_t requested_ = 0;
  uint64_t agreements_ = 0;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> bytes_;
};

}  // namespace

}  // namespace commpool::internal::report

int main(int argc, char** argv) {
  using namespace commpool::internal::report;
  if (argc < 4) {
    std::fputs("usage: example_recordings DIRECTORY RANKS EVENTS_OF_A_RANK [--differ | --expandable | --pools]\n",
               stderr);
    return 2;
  }
  const int64_t ranks = std::atoll(argv[2]);
  const std::string option = argc > 4 ? argv[4] : "";
  const Kind kind = option == "--differ"       ? Kind::kDiffering
                    : option == "--expandable" ? Kind::kExpandable
                    : option == "--pools"      ? Kind::kManyPools
                                               : Kind::kPlain;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Program(argv[1], rank, ranks, kind).Run(std::strtoull(argv[3], nullptr, 10));
  }
  return 0;
}
