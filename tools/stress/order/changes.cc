// What a worker does to pools and with other processes: growth, sleeps, captures, shared blocks.
#include <algorithm>
#include <array>
#include <utility>

#include "commpool/share.h"
#include "src/library/base/bytes.h"
#include "tools/stress/order/worker.h"

namespace commpool::cli::stress_order {

void OrderWorker::Hand() {
  if (blocks_.empty()) return;
  OrderBlock block = TakeOut(Random(blocks_.size()));
  while (!block.unrecorded.empty()) {
    const StreamPointer stream = block.unrecorded.back();
    streams_.On(stream.get(), [&] { Record(block, stream); });
  }
  // Ranks free a set together; who takes the others cannot know its stream.
  if (block.set != 0) {
    blocks_.push_back(std::move(block));
    return;
  }
  block.home = nullptr;
  std::scoped_lock lock(shared_.exchange);
  shared_.exchanged.push_back(std::move(block));
}

void OrderWorker::Receive() {
  std::scoped_lock lock(shared_.exchange);
  if (shared_.exchanged.empty()) return;
  blocks_.push_back(std::move(shared_.exchanged.back()));
  shared_.exchanged.pop_back();
}

void OrderWorker::WaitAcross() {
  std::vector<int> all;
  for (int device = 0; device < pools_.devices(); ++device) all.push_back(device);
  const StreamPointer first = streams_.Any(all);
  const StreamPointer second = streams_.Any(all);
  Moment moment;
  streams_.On(first.get(), [&] { moment = streams_.Now(first); });
  streams_.On(second.get(), [&] { streams_.Await(*second, moment); });
}

void OrderWorker::ChangePool(size_t number) {
  const OrderPool& pool = pools_[number];
  if (pool.group != SIZE_MAX) return ChangeGroup(pool.group);
  const uint64_t kind = Random(3);
  const uint64_t bytes = Random(4 * internal::kMiB);
  streams_.On(nullptr, [&] {
    if (kind == 0) {
      Expect(machine_.Ask([&] { return commpool_pool_trim(pool.handle, bytes, nullptr); }), "trim");
    } else if (kind == 1) {
      Expect(machine_.Ask([&] { return commpool_pool_reclaim(pool.handle, nullptr); }), "reclaim");
    } else {
      const Status status = machine_.Ask([&] { return commpool_pool_reserve(pool.handle, 1 + bytes); });
      if (status.code() != StatusCode::kOutOfMemory) Expect(status, "reserve");
    }
  });
}

void OrderWorker::ChangeGroup(size_t number) {
  const std::vector<commpool_pool>& handles = pools_.group(number).handles;
  const bool trims = Random(3) == 0;
  streams_.On(nullptr, [&] {
    const auto change = [&] {
      return trims ? commpool_pools_trim(handles.data(), handles.size(), 8 * internal::kMiB, nullptr)
                   : commpool_pools_reclaim(handles.data(), handles.size(), nullptr);
    };
    Expect(machine_.Ask(change), trims ? "trim of a symmetric pool" : "reclaim of a symmetric pool");
    if (!trims) return;
    const auto reserve = [&] { return commpool_pools_reserve(handles.data(), handles.size(), 8 * internal::kMiB); };
    Expect(machine_.Ask(reserve), "reserve of a symmetric pool");
  });
}

void OrderWorker::Sleep(size_t number) {
  const OrderPool& pool = pools_[number];
  if (!pool.sleeps) return;
  const bool in_group = pool.group != SIZE_MAX;
  const std::vector<commpool_pool> handles = in_group ? pools_.group(pool.group).handles : std::vector{pool.handle};
  const std::vector<size_t> numbers = in_group ? pools_.group(pool.group).pools : std::vector{number};
  const commpool_keep keep = Random(2) == 0 ? COMMPOOL_KEEP_HOST : COMMPOOL_KEEP_DISCARD;
  constexpr commpool_graphs kGraphs = COMMPOOL_GRAPHS_NO_COLLECTIVES;
  Status slept;
  streams_.On(nullptr, [&] {
    slept = machine_.Ask([&] { return commpool_pools_sleep(handles.data(), handles.size(), keep, kGraphs); });
  });
  // While another process imports it, or another thread captures.
  if (slept.code() == StatusCode::kFailedPrecondition && pool.shares) return;
  if (!slept.ok()) return Expect(slept, "sleep of " + pool.name);
  for (const size_t one : numbers) {
    if (keep == COMMPOOL_KEEP_DISCARD) pools_[one].discards.fetch_add(1);
  }
  for (uint64_t frees = Random(4); frees > 0 && !blocks_.empty(); --frees) FreeAt(Random(blocks_.size()));
  streams_.On(nullptr, [&] {
    Expect(machine_.Ask(
               [&] { return commpool_pools_wake(handles.data(), handles.size(), kGraphs, COMMPOOL_RETAIN_AS_BEFORE); }),
           "wake");
  });
}

void OrderWorker::Share() {
  if (blocks_.empty() || shared_.importer == nullptr) return;
  const size_t index = Random(blocks_.size());
  const OrderPool& pool = pools_[blocks_[index].pool];
  const bool known = blocks_[index].value != 0 && blocks_[index].discards == pool.discards.load();
  if (!pool.shares || !known) return;
  OrderBlock block = TakeOut(index);
  if (block.written.event != nullptr) machine_.cuda().cuEventSynchronize(block.written.event->get());
  std::array<char, COMMPOOL_TICKET_BYTES> ticket = {};
  const auto share = [&] {
    return commpool_block_share(reinterpret_cast<void*>(block.range.address), COMMPOOL_WRITES_ENDED, ticket.data(),
                                ticket.size());
  };
  Expect(machine_.Ask(share), "share of a block of " + pool.name);
  Note(block, "read by another process");
  const Status read = shared_.importer->Read(ticket.data(), pool.device, block.range.bytes, block.value);
  if (!read.ok()) machine_.Violate(step_, read.message(), block.range);
  Free(std::move(block));
}

void OrderWorker::CaptureAndReplay(size_t number) {
  const OrderPool& pool = pools_[number];
  const StreamPointer stream = streams_.Own(pool.device);
  if (!pool.captures || stream->blocking) return;
  RecordBeforeEnd(stream);  // nothing is recorded on it while it captures
  const internal::CudaDriver& cuda = machine_.cuda();
  const auto expect = [&](CUresult result, const char* call) {
    Expect(internal::CheckCuda(machine_.driver(), result, {.call = call, .device = pool.device}), "capture");
  };
  if (pool.outlive) stream->promised = true;
  std::vector<OrderBlock> left;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  commpool_capture capture = 0;
  stream->captures = capturing_ = true;
  streams_.On(stream.get(), [&] {
    expect(cuda.cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    Expect(machine_.Ask([&] { return commpool_capture_begin(pool.handle, stream->handle, &capture); }), "capture");
  });
  for (uint64_t turns = 1 + Random(3); turns > 0; --turns) {
    WorkInCapture(number, stream, left);
    TakeSharedStep(Random(940));  // other work meanwhile, on streams that do not capture
  }
  streams_.On(stream.get(), [&] {
    Expect(machine_.Ask([&] { return commpool_capture_end(capture); }), "capture");
    expect(cuda.cuStreamEndCapture(stream->handle, &graph), "cuStreamEndCapture");
    if (graph != nullptr) expect(cuda.cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  });
  stream->captures = capturing_ = false;
  if (Random(2) == 0) {
    for (OrderBlock& block : std::exchange(left, {})) Free(std::move(block));
  }
  for (uint64_t replays = 1 + Random(4); replays > 0; --replays) {
    if (executable != nullptr) expect(cuda.cuGraphLaunch(executable, stream->handle), "cuGraphLaunch");
    TakeSharedStep(Random(940));
  }
  expect(cuda.cuStreamSynchronize(stream->handle), "cuStreamSynchronize");
  if (executable != nullptr) expect(cuda.cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  if (graph != nullptr) expect(cuda.cuGraphDestroy(graph), "cuGraphDestroy");
  for (OrderBlock& block : left) Free(std::move(block));
}

// What a graph does with its blocks it does again at each replay: it writes before it reads.
void OrderWorker::WorkInCapture(size_t number, const StreamPointer& stream, std::vector<OrderBlock>& left) {
  OrderBlock block{.range = {0, 1 + Random(512 * internal::kKiB)}, .pool = number, .home = stream};
  const Status status = Ask(pools_[number], block.range.bytes, stream.get(), &block.range.address);
  if (status.code() == StatusCode::kOutOfMemory) return;
  if (!status.ok()) return Expect(status, "allocate in a capture");
  Note(block, "asked for in a capture on " + stream->Describe());
  block.value = NextValue();
  streams_.On(stream.get(), [&] {
    Fill(block, stream);
    Compare(block, stream);
  });
  if (Random(2) == 0) return Free(std::move(block));
  left.push_back(std::move(block));
}

}  // namespace commpool::cli::stress_order
