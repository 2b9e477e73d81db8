// LiveState: what lives in the pools of the process, so that a chapter can begin with it. Recorder owns one, under its
// lock.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_LIVE_STATE_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_LIVE_STATE_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>

#include "src/library/recording/entries.h"

namespace commpool::internal::recording {

class LiveState {
 public:
  // `time` is that of the entry. Entries of what does not live change nothing.
  template <typename Entry>
  void Apply(const Entry&, uint64_t) {}
  void Apply(const PoolMade& made, uint64_t time) { pools_[made.pool] = {made, time}; }
  void Apply(const PoolGone& gone, uint64_t) { pools_.erase(gone.pool); }
  void Apply(const SegmentMade& made, uint64_t time) { segments_[made.address] = {made, time}; }
  // A range may be a part of a segment, or be made of several.
  void Apply(const SegmentGone& gone, uint64_t time);
  void Apply(const BlockServed& served, uint64_t time) { blocks_[served.address] = {served, time}; }
  void Apply(const BlockFreed& freed, uint64_t) { blocks_.erase(freed.address); }
  void Apply(const Registered& made, uint64_t time) { registrations_[KeyOf(made)] = {made, time}; }
  void Apply(const Deregistered& ended, uint64_t) { registrations_.erase(KeyOf(ended)); }
  void Apply(const SpanBegan& began, uint64_t time) { spans_[began.span] = {began, time}; }
  void Apply(const SpanEnded& ended, uint64_t) { spans_.erase(ended.span); }

  bool HasBlock(uint64_t address) const { return blocks_.contains(address); }

  // Calls `tell` for all that lives, each with its age at `now`, in an order in which a reader knows what it reads of.
  template <typename Tell>
  void Retell(uint64_t now, Tell tell) const {
    const auto each = [&](const auto& all) {
      for (const auto& [key, one] : all) {
        auto entry = one.entry;
        entry.age = now - one.time;
        tell(entry);
      }
    };
    each(pools_);
    each(segments_);
    each(blocks_);
    each(registrations_);
    each(spans_);
  }

 private:
  template <typename Entry>
  struct Dated {
    Entry entry;
    uint64_t time = 0;
  };
  using RegistrationKey = std::tuple<uint64_t, uint64_t, uint64_t>;
  template <typename Entry>
  static RegistrationKey KeyOf(const Entry& entry) {
    return {entry.pool, entry.communicator, entry.address};
  }

  std::map<uint64_t, Dated<PoolMade>> pools_;
  std::map<uint64_t, Dated<SegmentMade>> segments_;  // by address
  std::unordered_map<uint64_t, Dated<BlockServed>> blocks_;
  std::map<RegistrationKey, Dated<Registered>> registrations_;
  std::map<uint64_t, Dated<SpanBegan>> spans_;
};

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_LIVE_STATE_H_
