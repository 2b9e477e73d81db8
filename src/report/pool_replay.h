// Replays one rank's entries into its pools: segments, blocks, registrations, bytes over time.
#ifndef COMMPOOL_SRC_REPORT_POOL_REPLAY_H_
#define COMMPOOL_SRC_REPORT_POOL_REPLAY_H_

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/report/eras.h"
#include "src/report/kept.h"
#include "src/report/model.h"
#include "src/report/pool_members.h"

namespace commpool::internal::report {

// The moment of most allocated bytes. It has a place among the entries that change these, because many have one time.
struct PeakMoment {
  int64_t time = kUnknown;
  uint64_t bytes = 0;
  uint64_t place = 0;
};

class PoolReplay {
 public:
  PoolReplay(ReportModel& report, uint32_t rank, Kept& kept, const ChapterTexts& texts, const Eras& eras)
      : report_(&report), rank_(rank), kept_(&kept), texts_(&texts), eras_(&eras) {}

  // After a gap: what pools hold is what the chapter retells.
  void BeginEra(int64_t time);
  void Take(int64_t time, const recording::PoolMade& entry);
  void Take(int64_t time, const recording::PoolGone& entry);
  void Take(int64_t time, const recording::SegmentMade& entry);
  void Take(int64_t time, const recording::SegmentGone& entry);
  void Take(int64_t time, const recording::BlockServed& entry);
  void Take(int64_t time, const recording::BlockFreed& entry);
  void Take(int64_t time, const recording::PoolBytes& entry);
  void Take(int64_t time, const recording::SmallBlocks& entry);
  void Take(int64_t time, const recording::Registered& entry);
  void Take(int64_t time, const recording::Deregistered& entry);
  // Ends what is known to have ended in a gap, and keeps what still lives.
  void Finish();

  // The index of a pool that lives, by its handle; kNone without one.
  uint32_t IndexOf(uint64_t handle) const;
  PoolModel& ModelOf(uint32_t pool) const { return pools()[pool]; }
  const PeakMoment& peak() const { return peak_; }

 private:
  struct LivingSegment {
    uint32_t index = 0;
    Life life;
  };
  struct LivingRegistration {
    uint32_t index = 0;
    Life life;
  };
  struct LivingBlock {
    BlockModel block;
    uint32_t pool = 0;
    size_t era = 0;
    Life life() const { return {block.from, era}; }
  };
  struct LivingPool {
    Life life;
    BytePoint now;
    bool retold = false;                         // `now` is of the beginning of an era, and not in the series yet
    std::map<uint64_t, LivingSegment> segments;  // by address
    std::map<std::pair<uint64_t, uint64_t>, LivingRegistration> registrations;  // by address and communicator
  };
  using Blocks = std::unordered_map<uint64_t, LivingBlock>;

  std::vector<PoolModel>& pools() const { return report_->ranks[rank_].pools; }
  // What is known to have ended in a gap ended before `time`.
  int64_t EndOf(const Life& life, int64_t time) const { return eras_->Knows(life) ? time : eras_->EndOf(life); }
  void Begin(uint32_t pool, uint64_t address, uint64_t bytes, Life life);
  void End(const LivingBlock& block, int64_t time);
  void EndAll(uint32_t pool, int64_t time);
  uint32_t SegmentAt(uint32_t pool, uint64_t address) const;
  void Change(uint32_t pool, int64_t time, const BytePoint& bytes);
  void Allocate(const LivingBlock& block, int64_t time);
  void NoticePeak(int64_t time);

  ReportModel* report_;
  uint32_t rank_;
  Kept* kept_;
  const ChapterTexts* texts_;
  const Eras* eras_;
  std::unordered_map<uint64_t, uint32_t> indices_;  // of living pools by their handles
  std::vector<LivingPool> living_;                  // by index, those that are gone too
  Blocks blocks_;                                   // by address
  PoolMembers members_;                             // blocks of pools by their index
  std::unordered_map<uint64_t, uint32_t> streams_;
  int64_t era_begin_ = kUnknown;
  uint64_t allocated_ = 0;  // in all pools
  uint64_t place_ = 0;
  PeakMoment peak_;
};

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_POOL_REPLAY_H_
