#include "tools/cli/stress/stress_worker.h"

#include <algorithm>
#include <cstring>

#include "src/base/bytes.h"
#include "src/driver/launch.h"

namespace commpool::cli {

namespace {

constexpr size_t kMostBlocks = 64;
constexpr uint64_t kTouched = 512;  // bytes at each end of a block: neighbours meet there

std::vector<DeviceRange> EndsOf(const StressBlock& block) {
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
      event_(Event::Create(machine.driver()).value()) {
  for (CUstream& stream : streams_) cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

StressWorker::~StressWorker() {
  for (const StressBlock& block : blocks_) Free(block);
  while (const std::optional<StressBlock> block = exchange_.Take()) Free(*block);
  for (const CUstream stream : streams_) {
    Expect(machine_.runtime().ReleaseStream(stream), "release_stream");
    cuda_.cuStreamDestroy(stream);
  }
}

void StressWorker::Expect(const Status& status, const char* what) {
  if (!status.ok()) machine_.Violate(std::string(what) + ": " + status.message());
}

uint64_t StressWorker::RandomBytes() {
  const uint64_t kind = Random(100);
  if (kind < 70) return 1 + Random(64 * kKiB);
  if (kind < 95) return 1 + Random(2 * kMiB);
  return 1 + Random(24 * kMiB);
}

StressBlock StressWorker::TakeOut(size_t index) {
  const StressBlock block = blocks_[index];
  blocks_[index] = blocks_.back();
  blocks_.pop_back();
  return block;
}

void StressWorker::Step() {
  const uint64_t kind = Random(1000);
  const bool empty = blocks_.empty();
  if (kind < 400 && blocks_.size() < kMostBlocks) return Allocate();
  if (kind < 630 && !empty) return Use(blocks_[Random(blocks_.size())]);
  if (kind < 960 && !empty) return Free(TakeOut(Random(blocks_.size())));
  if (kind < 970) return WaitAcross();
  if (kind < 980 && !empty) return Hand();
  if (kind < 990) return Receive();
  if (kind < 998) return ChangePool();
  if (kind < 999) return ReleaseStream();
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
    block.recorded = true;
  }
  Follow(block, stream);
  Check(block, stream);
  if (Random(2) == 0) Write(block, stream);
}

void StressWorker::Free(const StressBlock& block) { Expect(machine_.runtime().Free(block.address), "free"); }

void StressWorker::Hand() {
  const size_t index = Random(blocks_.size());
  if (blocks_[index].recorded) return;  // it may not be freed while a stream that it was recorded on is released
  StressBlock block = TakeOut(index);
  // A thread's word to another orders nothing on the device.
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
  Pool& pool = machine_.Get(index);
  switch (Random(4)) {
    case 0:
      Expect(pool.Trim(Random(64 * kMiB)).status(), "trim");
      break;
    case 1: {
      Status status = pool.Reserve(1 + Random(8 * kMiB));
      if (status.code() != StatusCode::kOutOfMemory || !machine_.MayRunOut(index)) Expect(status, "reserve");
      break;
    }
    default:
      Expect(pool.Reclaim().status(), "reclaim");
  }
}

void StressWorker::ReleaseStream() {
  const size_t stream = RandomStream();
  Expect(machine_.runtime().ReleaseStream(streams_[stream]), "release_stream");
  cuda_.cuStreamDestroy(streams_[stream]);
  cuda_.cuStreamCreate(&streams_[stream], CU_STREAM_NON_BLOCKING);
  for (StressBlock& block : blocks_) {
    if (block.home == stream) block.home = StressBlock::kNoStream;
    if (block.last == stream) block.last = StressBlock::kNoStream;
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
  const std::vector<DeviceRange> ends = EndsOf(block);
  Expect(Launch(machine_.driver(), streams_[stream], {}, ends,
                [ends, value = block.value](const std::vector<const void*>&, const std::vector<void*>& writes) {
                  for (size_t end = 0; end < ends.size(); ++end) std::memset(writes[end], value, ends[end].bytes);
                }),
         "write");
}

void StressWorker::Check(StressBlock& block, size_t stream) {
  const std::vector<DeviceRange> ends = EndsOf(block);
  StressMachine* const machine = &machine_;
  Expect(Launch(machine_.driver(), streams_[stream], ends, {},
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

bool StressWorker::PlantFault(Plant plant) {
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
