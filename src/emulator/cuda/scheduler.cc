#include "src/emulator/cuda/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/emulator/cuda/machine.h"

uint64_t CUevent_st::RecordedElsewhere() const {
  const uint64_t last = shared == nullptr ? 0 : shared->last();
  return last == shown ? 0 : last;
}

namespace commpool::internal::emulator {

Scheduler::Scheduler(Machine& machine, int devices, uint64_t seed)
    : machine_(machine), random_(seed), workers_(static_cast<size_t>(devices)), gone_(static_cast<size_t>(devices)) {
  for (int device = 0; device < devices; ++device) {
    auto legacy = std::make_unique<CUstream_st>();
    legacy->device = device;
    legacy->id = next_id_++;
    legacy->clock = machine_.races.OpenStream();
    legacy_.push_back(std::move(legacy));
  }
}

CUstream_st* Scheduler::CreateStream(int device, unsigned flags, int priority) {
  // A handle comes back at once, as a real driver reuses it.
  auto stream = dead_.empty() ? std::make_unique<CUstream_st>() : std::move(dead_.back());
  if (!dead_.empty()) dead_.pop_back();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id_++;
  stream->clock = machine_.races.OpenStream();
  CUstream_st* const handle = stream.get();
  streams_.emplace(handle, std::move(stream));
  return handle;
}

void Scheduler::DestroyStream(CUstream_st* stream) {
  stream->destroyed = true;
  RetireIfDestroyed(stream);
}

void Scheduler::RetireIfDestroyed(CUstream_st* stream) {
  if (!stream->destroyed || !stream->queue.empty()) return;
  const auto device = static_cast<size_t>(stream->device);
  gone_[device].Join(stream->clock.clock);
  // Later operations of the legacy stream come after those of a blocking stream.
  if (stream->blocking()) legacy_[device]->clock.clock.Join(stream->clock.clock);
  machine_.races.CloseStream(stream->clock);
  const auto found = streams_.find(stream);
  *stream = CUstream_st();
  dead_.push_back(std::move(found->second));
  streams_.erase(found);
}

bool Scheduler::IsDead(CUstream handle) const {
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second->destroyed;
  return std::any_of(dead_.begin(), dead_.end(), [&](const auto& stream) { return stream.get() == handle; });
}

CUstream_st* Scheduler::Resolve(CUstream handle, int device) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return legacy_[static_cast<size_t>(device)].get();
  if (handle == CU_STREAM_PER_THREAD) {
    std::unique_ptr<CUstream_st>& own = per_thread_[{std::this_thread::get_id(), device}];
    if (own == nullptr) {
      own = std::make_unique<CUstream_st>();
      own->device = device;
      own->id = next_id_++;
      own->clock = machine_.races.OpenStream();
    }
    return own.get();
  }
  const auto found = streams_.find(handle);
  if (found != streams_.end() && !found->second->destroyed) return found->second.get();
  if (IsDead(handle)) {
    machine_.logbook.Report("dead stream",
                            "a call names a stream that was destroyed, which ends the process on hardware");
  }
  return nullptr;
}

CUevent_st* Scheduler::CreateEvent(int device, unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->device = device;
  event->flags = flags;
  CUevent_st* const handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Scheduler::DestroyEvent(CUevent_st* event) { return events_.erase(event) != 0; }

// Whatever comes next in the stream may reuse their memory, so what touched them must be over by then.
void Scheduler::SubmitEndedBlocks(CUstream_st* stream) {
  auto end = std::make_shared<Operation>();
  end->name = "the possible reuse of a freed block";
  end->effect = Operation::Effect::kEndsBlock;
  for (const auto& block : std::exchange(stream->ended, {})) {
    if (machine_.addresses.Find(block->address) == nullptr) continue;
    end->writes.push_back({block->address, block->bytes});
    end->blocks.push_back(block);
  }
  if (!end->writes.empty()) Submit(stream, std::move(end));
}

void Scheduler::Submit(CUstream_st* stream, std::shared_ptr<Operation> operation) {
  const bool touches = !operation->reads.empty() || !operation->writes.empty();
  if (touches && !stream->ended.empty()) SubmitEndedBlocks(stream);
  operation->device = stream->device;
  operation->stream = stream->id;
  operation->sequence = next_sequence_++;
  operation->submitted_us = host_time_us;
  operation->reach = ReachOf(stream);
  for (const std::shared_ptr<Marker>& marker : operation->waits) operation->reach.Join(marker->reach);
  for (const std::shared_ptr<Operation>& other : operation->after) operation->reach.Join(other->reach);
  operation->reach.Set(stream->id, operation->sequence);
  if (operation->marker != nullptr) operation->marker->reach = operation->reach;
  const auto comes_after = [&](const CUstream_st& other) {
    if (other.last != nullptr && other.last->state != Operation::State::kDone) operation->after.push_back(other.last);
    operation->clock.Join(other.clock.clock);
  };
  CUstream_st* const legacy = legacy_[static_cast<size_t>(stream->device)].get();
  if (stream == legacy) {
    for (const auto& [handle, other] : streams_) {
      if (other->device == stream->device && other->blocking()) comes_after(*other);
    }
    for (const auto& [key, other] : per_thread_) {
      if (other->device == stream->device) comes_after(*other);
    }
  } else if (stream->blocking()) {
    comes_after(*legacy);
  }
  machine_.races.Submitted(*operation);
  machine_.async_memory.CheckLife(*operation);
  stream->last = operation;
  stream->queue.push_back(std::move(operation));
  const Workers& workers = workers_[static_cast<size_t>(stream->device)];
  if (!workers.led && workers.idle == 0) StartWorker(stream->device);
  changed_.notify_all();
}

StreamReach Scheduler::ReachOf(const CUstream_st* stream) const {
  StreamReach reach;
  const auto join = [&](const CUstream_st& other) {
    if (other.last != nullptr) reach.Join(other.last->reach);
  };
  join(*stream);
  const CUstream_st* const legacy = legacy_[static_cast<size_t>(stream->device)].get();
  if (stream == legacy) {
    for (const CUstream_st* other : AllStreams()) {
      if (other->device == stream->device && other->blocking()) join(*other);
    }
  } else if (stream->blocking()) {
    join(*legacy);
  }
  return reach;
}

void Scheduler::StartWorker(int device) {
  ++workers_[static_cast<size_t>(device)].idle;
  std::thread([this, device] { Work(device); }).detach();
}

std::vector<CUstream_st*> Scheduler::AllStreams() const {
  std::vector<CUstream_st*> all;
  for (const auto& stream : legacy_) all.push_back(stream.get());
  for (const auto& [handle, stream] : streams_) all.push_back(stream.get());
  for (const auto& [key, stream] : per_thread_) all.push_back(stream.get());
  return all;
}

bool Scheduler::IsReady(const CUstream_st& stream) const {
  if (stream.queue.empty() || stream.queue.front()->state != Operation::State::kWaiting) return false;
  const Operation& head = *stream.queue.front();
  return std::all_of(head.after.begin(), head.after.end(),
                     [](const auto& other) { return other->state == Operation::State::kDone; }) &&
         std::all_of(head.waits.begin(), head.waits.end(), [](const auto& marker) { return marker->done; });
}

std::shared_ptr<Operation> Scheduler::PickReady(int device, CUstream_st** stream) {
  std::vector<CUstream_st*> ready;
  for (CUstream_st* candidate : AllStreams()) {
    if (candidate->device == device && IsReady(*candidate)) ready.push_back(candidate);
  }
  if (ready.empty()) return nullptr;
  // Sorts by age, not by address, so that the same seed gives the same choice.
  std::sort(ready.begin(), ready.end(), [](const CUstream_st* a, const CUstream_st* b) { return a->id < b->id; });
  *stream = ready[random_() % ready.size()];
  return (*stream)->queue.front();
}

void Scheduler::Work(int device) {
  std::unique_lock<std::mutex> lock(machine_.mutex);
  Workers& workers = workers_[static_cast<size_t>(device)];
  for (;;) {
    CUstream_st* stream = nullptr;
    std::shared_ptr<Operation> operation;
    changed_.wait(lock, [&] { return !workers.led && (operation = PickReady(device, &stream)) != nullptr; });
    --workers.idle;
    const bool leads = operation->pace == Operation::Pace::kPrompt;
    workers.led = leads;
    if (!leads && workers.idle == 0) StartWorker(device);
    Run(lock, stream, operation);
    if (leads) workers.led = false;
    ++workers.idle;
    changed_.notify_all();
  }
}

double Scheduler::StartTime(const CUstream_st& stream, const Operation& operation) const {
  double start = std::max(stream.time_us, operation.submitted_us);
  for (const auto& other : operation.after) start = std::max(start, other->end_us);
  for (const auto& marker : operation.waits) start = std::max(start, marker->time_us);
  return start;
}

bool Scheduler::CheckRanges(const Operation& operation, Pointers* reads, Pointers* writes) {
  // It touches nothing: where the memory has gone meanwhile, nobody can reuse it.
  if (operation.effect == Operation::Effect::kEndsBlock) return true;
  CUctx_st& context = *machine_.contexts[static_cast<size_t>(operation.device)];
  for (const bool writing : {false, true}) {
    const auto use = writing ? Machine::Use::kWrite : Machine::Use::kRead;
    for (const commpoolEmulatorRange& range : writing ? operation.writes : operation.reads) {
      if (machine_.CheckAccess(use, range, operation.device, operation.copy_devices) != CUDA_SUCCESS) {
        context.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        machine_.logbook.Report("access to memory that is not there",
                                operation.name + " on device " + std::to_string(operation.device) +
                                    ": the range was unmapped or revoked before it ended");
        return false;
      }
      Pointers* const pointers = writing ? writes : reads;
      if (pointers != nullptr) pointers->push_back(machine_.addresses.HostPointer(range.address));
    }
  }
  return true;
}

void Scheduler::Run(std::unique_lock<std::mutex>& lock, CUstream_st* stream,
                    const std::shared_ptr<Operation>& operation) {
  operation->state = Operation::State::kRunning;
  const double start_us = StartTime(*stream, *operation);
  machine_.races.Started(*operation, stream->clock);
  const CUctx_st& context = *machine_.contexts[static_cast<size_t>(stream->device)];
  // Memory that was mapped at submission may be gone now. On hardware that loses the context, and a lost context runs
  // nothing any more.
  Pointers reads;
  Pointers writes;
  if (context.sticky != CUDA_SUCCESS || !CheckRanges(*operation, &reads, &writes)) {
    Finish(stream, operation, start_us);
    return;
  }
  machine_.races.Touched(operation, machine_.addresses);
  if (operation->start) {
    auto* const handle = new commpoolEmulatorOperation_st{stream, operation};
    lock.unlock();
    operation->start(handle, reads, writes, start_us);
    lock.lock();
    return;  // Complete finishes it
  }
  if (operation->run) {
    lock.unlock();
    operation->run(reads, writes);
    lock.lock();
    if (context.sticky == CUDA_SUCCESS) CheckRanges(*operation, nullptr, nullptr);
  }
  Finish(stream, operation, start_us + operation->duration_us);
}

void Scheduler::Finish(CUstream_st* stream, const std::shared_ptr<Operation>& operation, double end_us) {
  operation->state = Operation::State::kDone;
  operation->end_us = end_us;
  operation->run = nullptr;  // frees what the function holds
  operation->start = nullptr;
  if (operation->objects != nullptr) operation->objects->NoteWork(operation->clock);
  operation->objects.reset();
  operation->after.clear();
  operation->waits.clear();
  stream->time_us = end_us;
  machine_.races.Ended(*operation, stream->clock);
  if (operation->marker != nullptr) {
    operation->marker->time_us = end_us;
    operation->marker->done = true;
    operation->marker->done_at = std::chrono::steady_clock::now();
    operation->marker->shown.reset();
  }
  stream->queue.pop_front();
  RetireIfDestroyed(stream);
  changed_.notify_all();
}

void Scheduler::Complete(commpoolEmulatorOperation handle, double end_us, CUresult result) {
  const std::unique_ptr<commpoolEmulatorOperation_st> owned(handle);
  CUctx_st& context = *machine_.contexts[static_cast<size_t>(owned->stream->device)];
  if (result != CUDA_SUCCESS && context.sticky == CUDA_SUCCESS) context.sticky = result;
  if (context.sticky == CUDA_SUCCESS) CheckRanges(*owned->operation, nullptr, nullptr);
  Finish(owned->stream, owned->operation, end_us);
}

void Scheduler::WaitForStream(std::unique_lock<std::mutex>& lock, CUstream_st* stream) {
  const std::shared_ptr<Operation> last = stream->last;
  if (last == nullptr) return;
  changed_.wait(lock, [&] { return last->state == Operation::State::kDone; });
  host_time_us = std::max(host_time_us, last->end_us);
  machine_.races.HostWaitedFor(last->clock);
}

void Scheduler::WaitForDevice(std::unique_lock<std::mutex>& lock, int device) {
  std::vector<std::shared_ptr<Operation>> all;
  for (const CUstream_st* stream : AllStreams()) {
    if (stream->device == device && stream->last != nullptr) all.push_back(stream->last);
  }
  for (const std::shared_ptr<Operation>& last : all) {
    changed_.wait(lock, [&] { return last->state == Operation::State::kDone; });
    host_time_us = std::max(host_time_us, last->end_us);
    machine_.races.HostWaitedFor(last->clock);
  }
  machine_.races.HostWaitedFor(gone_[static_cast<size_t>(device)]);
}

Clock Scheduler::ClockOfDevice(int device) const {
  Clock clock = gone_[static_cast<size_t>(device)];
  for (const CUstream_st* stream : AllStreams()) {
    if (stream->device == device) clock.Join(stream->clock.clock);
  }
  return clock;
}

void Scheduler::WaitForMarker(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Marker>& marker) {
  changed_.wait(lock, [&] { return marker->done; });
  host_time_us = std::max(host_time_us, marker->time_us);
  machine_.races.HostWaitedFor(marker->clock);
}

const char* Scheduler::PendingUse(CUdeviceptr address, uint64_t bytes) const {
  for (const CUstream_st* stream : AllStreams()) {
    for (const std::shared_ptr<Operation>& operation : stream->queue) {
      if (operation->Touches(address, bytes)) return operation->name.c_str();
    }
  }
  return nullptr;
}

bool Scheduler::IsRunningOn(CUdeviceptr address, uint64_t bytes) const {
  const std::vector<CUstream_st*> all = AllStreams();
  return std::any_of(all.begin(), all.end(), [&](const CUstream_st* stream) {
    return !stream->queue.empty() && stream->queue.front()->state == Operation::State::kRunning &&
           stream->queue.front()->Touches(address, bytes);
  });
}

std::vector<std::string> Scheduler::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [handle, stream] : streams_) {
    if (!stream->destroyed)
      lines.push_back("stream " + std::to_string(stream->id) + " of device " + std::to_string(stream->device));
  }
  for (const auto& [handle, event] : events_) lines.push_back("event of device " + std::to_string(event->device));
  return lines;
}

}  // namespace commpool::internal::emulator
