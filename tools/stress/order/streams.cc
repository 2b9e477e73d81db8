#include "tools/stress/order/streams.h"

#include <algorithm>
#include <utility>

namespace commpool::cli::stress_order {

namespace {

constexpr int kThreads = 2;
constexpr int kOwnStreams = 3;  // of a device

bool Contains(const std::vector<int>& devices, int device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

}  // namespace

std::string OrderStream::Describe() const {
  const std::string place = " of device " + std::to_string(device);
  if (kind == Kind::kDefault) return "default stream" + place;
  if (kind == Kind::kPerThread) return "default stream" + place + " for thread " + std::to_string(thread);
  return std::string(promised ? "promised" : "unpromised") + " stream " + std::to_string(number) + place;
}

OrderStreams::OrderStreams(Machine& machine, std::mt19937_64& random, int devices)
    : machine_(machine), random_(random), devices_(devices) {
  for (int thread = 0; thread < kThreads; ++thread) AddThread();
  for (int device = 0; device < devices; ++device) {
    auto legacy = std::make_shared<OrderStream>();
    legacy->kind = OrderStream::Kind::kDefault;
    legacy->device = device;
    legacy->handle = device % 2 == 0 ? nullptr : CU_STREAM_LEGACY;
    streams_.push_back(std::move(legacy));
    for (int own = 0; own < kOwnStreams; ++own) streams_.push_back(MakeOwn(device));
  }
}

OrderStreams::~OrderStreams() {
  for (const StreamPointer& stream : streams_) {
    if (!stream->IsDefault()) Destroy(*stream);
  }
}

void OrderStreams::AddThread() {
  const int number = next_thread_++;
  threads_.push_back(std::make_unique<ProgramThread>(number));
  for (int device = 0; device < devices_; ++device) {
    auto stream = std::make_shared<OrderStream>();
    stream->kind = OrderStream::Kind::kPerThread;
    stream->device = device;
    stream->handle = CU_STREAM_PER_THREAD;
    stream->thread = number;
    streams_.push_back(std::move(stream));
  }
}

StreamPointer OrderStreams::MakeOwn(int device) {
  auto stream = std::make_shared<OrderStream>();
  stream->device = device;
  stream->number = next_number_++;
  stream->blocking = Random(4) == 0;
  const unsigned flags = stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  const bool promised = Random(2) == 0;
  On(stream.get(), [&] {
    machine_.cuda().cuStreamCreate(&stream->handle, flags);
    if (!promised) return;
    const Status status = machine_.Ask([&] { return commpool_promise_stream(stream->handle); });
    if (!status.ok()) machine_.Violate(0, "promise_stream: " + status.message());
    stream->promised = true;
  });
  return stream;
}

void OrderStreams::Destroy(OrderStream& stream) {
  On(&stream, AnyDevice(), [&] {
    if (stream.promised) {
      const Status status = machine_.Ask([&] { return commpool_release_stream(stream.handle); });
      if (!status.ok()) machine_.Violate(0, "release_stream: " + status.message());
    }
    machine_.cuda().cuStreamDestroy(stream.handle);
  });
  stream.gone = true;
}

StreamPointer OrderStreams::Any(const std::vector<int>& devices) {
  std::vector<StreamPointer> found;
  for (const StreamPointer& stream : streams_) {
    if (Contains(devices, stream->device) && !stream->captures) found.push_back(stream);
  }
  return found[Random(found.size())];
}

StreamPointer OrderStreams::Own(int device) {
  std::vector<StreamPointer> found;
  for (const StreamPointer& stream : streams_) {
    if (stream->device == device && !stream->IsDefault()) found.push_back(stream);
  }
  return found[Random(found.size())];
}

void OrderStreams::On(const OrderStream* stream, const std::function<void()>& call) {
  On(stream, stream == nullptr ? AnyDevice() : stream->device, call);
}

void OrderStreams::On(const OrderStream* stream, int device, const std::function<void()>& call) {
  ProgramThread* chosen = threads_[Random(threads_.size())].get();
  for (const auto& thread : threads_) {
    if (stream != nullptr && thread->number() == stream->thread) chosen = thread.get();
  }
  chosen->Run([&] {
    machine_.MakeCurrent(device);
    call();
  });
}

Moment OrderStreams::Now(const StreamPointer& stream) {
  Result<internal::Event> event = internal::Event::Create(machine_.driver());
  if (!event.ok()) {
    machine_.Violate(0, event.status().message());
    return {};
  }
  machine_.cuda().cuEventRecord(event->get(), stream->handle);
  return {stream, std::make_shared<internal::Event>(std::move(*event))};
}

void OrderStreams::Await(const OrderStream& stream, const Moment& moment) {
  if (moment.stream == nullptr || moment.stream.get() == &stream) return;
  machine_.cuda().cuStreamWaitEvent(stream.handle, moment.event->get(), 0);
}

void OrderStreams::ReplaceStream(const BeforeEnd& before) {
  const StreamPointer old = Own(AnyDevice());
  if (old->captures) return;
  before(old);
  Destroy(*old);
  *std::find(streams_.begin(), streams_.end(), old) = MakeOwn(old->device);
}

void OrderStreams::ReplaceThread(const BeforeEnd& before) {
  const auto ending = threads_.begin() + static_cast<ptrdiff_t>(Random(threads_.size()));
  const int number = (*ending)->number();
  for (const StreamPointer& stream : streams_) {
    if (stream->thread != number) continue;
    before(stream);
    stream->gone = true;
  }
  threads_.erase(ending);
  std::erase_if(streams_, [&](const StreamPointer& stream) { return stream->thread == number; });
  AddThread();
}

void OrderStreams::WaitOnHost() {
  const bool whole_device = Random(3) == 0;
  const StreamPointer stream = streams_[Random(streams_.size())];
  On(stream.get(), [&] {
    if (whole_device) {
      machine_.cuda().cuCtxSynchronize();
    } else {
      machine_.cuda().cuStreamSynchronize(stream->handle);
    }
  });
}

}  // namespace commpool::cli::stress_order
