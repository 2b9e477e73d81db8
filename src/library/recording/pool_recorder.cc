#include "src/library/recording/books.h"
#include "src/library/recording/recorder.h"

namespace commpool::internal::recording {

void Span::End(const Status& status) {
  if (const SpanListener* const listener = std::exchange(listener_, nullptr)) listener->Ended();
  Recorder* const recorder = std::exchange(recorder_, nullptr);
  if (recorder == nullptr) return;
  recorder->Record([&](Texts& texts) -> Event {
    return SpanEnded{number_, status.ok() ? 0 : texts.NumberOf(status.message())};
  });
}

void PoolRecorder::Made(std::string_view name, std::string_view kind, int device, HomePlace place,
                        std::string_view budget) const {
  made_.store(true, std::memory_order_relaxed);
  Record([&](Texts& texts) -> Event {
    return PoolMade{.pool = pool_,
                    .name = texts.NumberOf(name),
                    .kind = texts.NumberOf(kind),
                    .device = device,
                    .home = place.home,
                    .channel = place.channel,
                    .budget = texts.NumberOf(budget)};
  });
}

// The stack is composed before the recorder's lock is taken.
void PoolRecorder::ServedWhileOn(uint64_t address, uint64_t bytes, uint64_t requested, uint64_t stream) const {
  const std::string stack = recorder_.Stack();
  Record([&](Texts& texts) -> Event {
    return BlockServed{.pool = pool_,
                       .address = address,
                       .bytes = bytes,
                       .requested = requested,
                       .stream = stream,
                       .stack = texts.NumberOf(stack)};
  });
}

void PoolRecorder::Bytes(PoolBytes now) {
  if (!on()) return;
  const bool new_recording = told_times_ != recorder_.times();
  if (new_recording) told_small_.clear();
  told_times_ = recorder_.times();
  const bool made = made_.exchange(false, std::memory_order_relaxed);
  tells_all_ = new_recording || told_chapter_ != recorder_.chapters() || made;
  if (!tells_all_ && now == told_) return;
  told_ = now;
  Tell(now);
  tells_all_ = tells_all_ || told_chapter_ != recorder_.chapters();  // this entry may have begun a chapter
  told_chapter_ = recorder_.chapters();
}

void PoolRecorder::Small(uint64_t bytes, uint64_t served, uint64_t cached) {
  if (!on()) return;
  const bool before = counts_from_.load(std::memory_order_relaxed) == recorder_.times();
  auto& [told_served, told_cached] = told_small_.try_emplace(bytes, before ? served : 0, 0).first->second;
  const bool tells = tells_all_ && cached > 0;
  if (!tells && served == told_served && cached == told_cached) return;
  Tell(SmallBlocks{.bytes = bytes, .served = served - told_served, .cached = cached});
  told_served = served;
  told_cached = cached;
}

void PoolRecorder::Called(uint64_t number, std::string_view call, uint64_t value) const {
  Record([&](Texts& texts) -> Event { return Call{pool_, number, texts.NumberOf(call), value}; });
}

void PoolRecorder::BeganHandle(SpanKind kind, uint64_t handle, std::string_view text) const {
  if (listener_ != nullptr) listener_->BeganHandle(Recorder::SpanOfHandle(kind, handle), text);
  Record([&](Texts& texts) -> Event {
    return SpanBegan{
        .span = Recorder::SpanOfHandle(kind, handle), .kind = kind, .pool = pool_, .text = texts.NumberOf(text)};
  });
}

Span PoolRecorder::Began(SpanKind kind, std::string_view text, uint64_t number, HomePlace place) const {
  // One number for the home and the pool's channel there.
  const uint64_t home = place.home == 0 ? 0 : place.home ^ place.channel * 0x9e3779b97f4a7c15;
  Span span;
  if (on()) {
    SpanBegan began{.span = recorder_.NextSpan(), .kind = kind, .pool = pool_, .home = home, .number = number};
    recorder_.Record([&](Texts& texts) -> Event {
      began.text = texts.NumberOf(text);
      return began;
    });
    span.recorder_ = &recorder_;  // from here on its end is recorded
    span.number_ = began.span;
  }
  if (listener_ != nullptr) listener_->Began(text);
  span.listener_ = listener_;
  return span;
}

}  // namespace commpool::internal::recording
