#include "tools/stress/engine/worker.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <shared_mutex>

#include "src/base/bytes.h"
#include "tools/common/launch.h"
#include "tools/stress/engine/capture.h"

namespace commpool::cli {

namespace {

constexpr size_t kMostBlocks = 64;
constexpr uint64_t kTouched = 512;  // bytes at each end of a block, where neighbours could overwrite it

std::vector<internal::DeviceRange> EndsOf(const StressBlock& block) {
  const uint64_t touched = std::min(block.bytes, kTouched);
  if (block.bytes <= 2 * kTouched) return {{block.address, touched}};
  return {{block.address, touched}, {block.address + block.bytes - touched, touched}};
}

}  // namespace

void Exchange::Give(const StressBlock& block) {
  std::scoped_lock lock(mutex_);
  blocks_.push_back(block);
}

std::optional<StressBlock> Exchange::Take() {
  std::scoped_lock lock(mutex_);
  if (blocks_.empty()) return std::nullopt;
  const StressBlock block = blocks_.back();
  blocks_.pop_back();
  return block;
}

StressWorker::StressWorker(StressMachine& machine, Exchange& exchange, uint64_t seed)
    : machine_(machine),
      exchange_(exchange),
      cuda_(machine.driver().cuda),
      random_(seed),
      current_(machine.driver(), machine.context()),
      event_(internal::Event::Create(machine.driver()).value()) {
  for (CUstream& stream : streams_) cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

StressWorker::~StressWorker() {
  const std::shared_lock together(machine_.capture_mutex());
  for (const StressBlock& block : blocks_) Free(block);
  while (const std::optional<StressBlock> block = exchange_.Take()) Free(*block);
  for (const CUstream stream : streams_) Destroy(stream);
}

void StressWorker::Expect(const Status& status, const char* what) {
  if (!status.ok()) machine_.Violate(std::string(what) + ": " + status.message());
}

uint64_t StressWorker::RandomBytes() {
  const uint64_t kind = Random(100);
  if (kind < 70) return 1 + Random(64 * internal::kKiB);
  if (kind < 95) return 1 + Random(2 * internal::kMiB);
  return 1 + Random(24 * internal::kMiB);
}

StressBlock StressWorker::TakeOut(size_t index) {
  const StressBlock block = blocks_[index];
  blocks_[index] = blocks_.back();
  blocks_.pop_back();
  return block;
}

void StressWorker::Step() {
  const uint64_t kind = Random(1000);
  if (kind == 999) return CaptureAndReplay();
  const std::shared_lock together(machine_.capture_mutex());
  TakeStep(kind);
}

void StressWorker::TakeStep(uint64_t kind) {
  const bool empty = blocks_.empty();
  if (kind < 400 && blocks_.size() < kMostBlocks) return Allocate();
  if (kind < 630 && !empty) return Use(blocks_[Random(blocks_.size())]);
  if (kind < 960 && !empty) return Free(TakeOut(Random(blocks_.size())));
  if (kind < 970) return WaitAcross();
  if (kind < 980 && !empty) return Hand();
  if (kind < 990) return Receive();
  if (kind < 996) return ChangePool();
  if (kind < 998) return ReplaceStream(RandomStream());
  Allocate();
}

void StressWorker::Allocate() {
  StressBlock block;
  block.pool = Random(machine_.pools().size());
  block.bytes = RandomBytes();
  block.home = RandomStream();
  Result<CUdeviceptr> address =
      machine_.runtime().AllocateFrom(machine_.pools()[block.pool], block.bytes, streams_[block.home]);
  if (!address.ok()) {
    const bool expected = address.status().code() == StatusCode::kOutOfMemory && machine_.MayRunOut(block.pool);
    if (!expected) Expect(address.status(), "allocate");
    return;
  }
  block.address = *address;
  block.last = block.home;
  Write(block, block.home);
  blocks_.push_back(block);
}

void StressWorker::Use(StressBlock& block) {
  const size_t stream = RandomStream();
  if (stream != block.home) {
    Expect(machine_.runtime().RecordStream(block.address, streams_[stream]), "record_stream");
  }
  Follow(block, stream);
  Check(block, stream);
  if (Random(2) == 0) Write(block, stream);
}

void StressWorker::Free(const StressBlock& block) { Expect(machine_.runtime().Free(block.address), "free"); }

void StressWorker::Hand() {
  StressBlock block = TakeOut(Random(blocks_.size()));
  // When one thread tells another, that orders nothing on the device.
  if (block.last != StressBlock::kNoStream) cuda_.cuStreamSynchronize(streams_[block.last]);
  block.home = StressBlock::kNoStream;
  block.last = StressBlock::kNoStream;
  exchange_.Give(block);
}

void StressWorker::Receive() {
  if (const std::optional<StressBlock> block = exchange_.Take()) blocks_.push_back(*block);
}

void StressWorker::ChangePool() {
  const size_t index = Random(machine_.pools().size());
  internal::Pool& pool = machine_.Get(index);
  switch (Random(4)) {
    case 0:
      Expect(pool.Trim(Random(64 * internal::kMiB)).status(), "trim");
      break;
    case 1: {
      Status status = pool.Reserve(1 + Random(8 * internal::kMiB));
      if (status.code() != StatusCode::kOutOfMemory || !machine_.MayRunOut(index)) Expect(status, "reserve");
      break;
    }
    default:
      Expect(pool.Reclaim().status(), "reclaim");
  }
}

void StressWorker::Destroy(CUstream stream) {
  if (machine_.streams() == internal::Streams::kOutlive) {
    Expect(machine_.runtime().ReleaseStream(stream), "release_stream");
  }
  cuda_.cuStreamDestroy(stream);
}

void StressWorker::ReplaceStream(size_t stream) {
  // The new stream must wait for the old one, whose work may be pending, so that last uses stay in order.
  cuda_.cuEventRecord(event_.get(), streams_[stream]);
  Destroy(streams_[stream]);
  cuda_.cuStreamCreate(&streams_[stream], CU_STREAM_NON_BLOCKING);
  cuda_.cuStreamWaitEvent(streams_[stream], event_.get(), 0);
  for (StressBlock& block : blocks_) {
    if (block.home == stream) block.home = StressBlock::kNoStream;
  }
}

void StressWorker::WaitAcross() {
  cuda_.cuEventRecord(event_.get(), streams_[RandomStream()]);
  cuda_.cuStreamWaitEvent(streams_[RandomStream()], event_.get(), 0);
}

void StressWorker::Follow(StressBlock& block, size_t stream) {
  if (block.last != StressBlock::kNoStream && block.last != stream) {
    cuda_.cuEventRecord(event_.get(), streams_[block.last]);
    cuda_.cuStreamWaitEvent(streams_[stream], event_.get(), 0);
  }
  block.last = stream;
}

void StressWorker::Write(StressBlock& block, size_t stream) {
  block.value = static_cast<uint8_t>(random_());
  const std::vector<internal::DeviceRange> ends = EndsOf(block);
  Expect(
      internal::Launch(machine_.driver(), streams_[stream], {}, ends,
                       [ends, value = block.value](const std::vector<const void*>&, const std::vector<void*>& writes) {
                         for (size_t end = 0; end < ends.size(); ++end)
                           std::memset(writes[end], value, ends[end].bytes);
                       }),
      "write");
}

void StressWorker::Check(StressBlock& block, size_t stream) {
  const std::vector<internal::DeviceRange> ends = EndsOf(block);
  StressMachine* const machine = &machine_;
  Expect(internal::Launch(
             machine_.driver(), streams_[stream], ends, {},
             [ends, machine, value = block.value](const std::vector<const void*>& reads, const std::vector<void*>&) {
               for (size_t end = 0; end < ends.size(); ++end) {
                 const auto* bytes = static_cast<const uint8_t*>(reads[end]);
                 const auto right = std::count(bytes, bytes + ends[end].bytes, value);
                 if (const uint64_t wrong = ends[end].bytes - static_cast<uint64_t>(right)) {
                   machine->CountWrongBytes(wrong);
                 }
               }
             }),
         "read");
}

void StressWorker::CaptureAndReplay() {
  const size_t pool = Random(machine_.pools().size());
  const size_t stream = RandomStream();
  std::vector<StressBlock> left;
  {
    StressCapture capture(machine_, pool, streams_[stream], [&] { WorkInCapture(pool, stream, left); });
    for (uint64_t replays = 1 + Random(4); replays > 0; --replays) {
      capture.Replay();
      const std::shared_lock together(machine_.capture_mutex());
      TakeStep(Random(970));  // other steps meanwhile, on any pool
    }
  }
  const std::shared_lock together(machine_.capture_mutex());
  for (const StressBlock& block : left) Free(block);
}

void StressWorker::WorkInCapture(size_t pool, size_t stream, std::vector<StressBlock>& left) {
  for (uint64_t count = 1 + Random(6); count > 0; --count) {
    StressBlock block{.bytes = 1 + Random(512 * internal::kKiB), .pool = pool, .home = stream, .last = stream};
    Result<CUdeviceptr> address =
        machine_.runtime().AllocateFrom(machine_.pools()[pool], block.bytes, streams_[stream]);
    if (address.status().code() == StatusCode::kOutOfMemory) continue;  // a pool may not grow in a capture
    if (!address.ok()) return Expect(address.status(), "allocate in a capture");
    block.address = *address;
    Write(block, stream);
    Check(block, stream);
    if (Random(2) == 0) {
      Free(block);
    } else {
      left.push_back(block);
    }
  }
  for (StressBlock& block : left) Check(block, stream);
}

// Plants a fault: a pool serves a capturing stream, and nobody has announced the capture.
void StressWorker::PlantCapture() {
  const std::unique_lock alone(machine_.capture_mutex());
  const CUstream stream = streams_[RandomStream()];
  Result<CUdeviceptr> first = machine_.runtime().AllocateFrom(machine_.pools()[0], internal::kKiB, stream);
  if (first.ok()) Expect(machine_.runtime().Free(*first), "free");  // so that there is free memory to serve
  cuda_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  Result<CUdeviceptr> address = machine_.runtime().AllocateFrom(machine_.pools()[0], internal::kKiB, stream);
  CUgraph graph = nullptr;
  cuda_.cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) cuda_.cuGraphDestroy(graph);
  if (address.ok()) Expect(machine_.runtime().Free(*address), "free");
}

// Plants a fault: a stream gets its memory again while another one still uses it, and the pools' table of the driver
// skips the wait. A full pool cannot grow instead. The device stands still meanwhile, for a pool that finds work done
// needs no wait.
bool StressWorker::PlantSkippedWait() {
  const std::unique_lock alone(machine_.capture_mutex());
  constexpr uint64_t kBytes = 2 * internal::kMiB;
  const internal::PoolHandle limited = machine_.pools().back();
  std::vector<StressBlock> first;
  for (;;) {
    Result<CUdeviceptr> address = machine_.runtime().AllocateFrom(limited, kBytes, streams_[0]);
    if (!address.ok()) break;
    first.push_back({.address = *address, .bytes = kBytes});
  }
  if (first.empty()) return false;
  std::promise<void> go_on;
  const auto hold = [held = go_on.get_future().share()](auto&&...) { held.wait(); };
  Expect(internal::Launch(machine_.driver(), streams_[1], {}, {}, hold), "hold");
  for (StressBlock& block : first) {
    Expect(machine_.runtime().RecordStream(block.address, streams_[1]), "record_stream");
    Write(block, 1);
    Free(block);
  }
  Result<CUdeviceptr> address = machine_.runtime().AllocateFrom(limited, kBytes, streams_[0]);
  if (address.ok()) {
    StressBlock second{.address = *address, .bytes = kBytes};
    Write(second, 0);
    Free(second);
  }
  go_on.set_value();
  return address.ok();
}

bool StressWorker::PlantFault(Plant plant) {
  if (plant == Plant::kSkipWait) return PlantSkippedWait();
  if (plant == Plant::kUnannouncedCapture) {
    PlantCapture();
    return true;
  }
  if (plant == Plant::kDeadStream) {
    CUstream stream = nullptr;
    cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuda_.cuStreamDestroy(stream);
    cuda_.cuStreamQuery(stream);
    return true;
  }
  const std::shared_lock together(machine_.capture_mutex());
  return PlantInBlock(plant);
}

bool StressWorker::PlantInBlock(Plant plant) {
  if (blocks_.empty()) return false;
  StressBlock block = TakeOut(0);
  if (plant == Plant::kLeak) return true;
  const size_t stream = RandomStream();
  Follow(block, stream);
  Free(block);
  if (plant == Plant::kDoubleFree) Free(block);
  if (plant == Plant::kUseAfterFree) Write(block, stream);
  return true;
}

}  // namespace commpool::cli
