// Replays one rank's entries into its pools: segments, blocks, registrations, bytes over time, and who held the memory
// at the peak.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/report/kept.h"
#include "src/report/memory_book.h"
#include "src/report/model.h"

namespace commpool::internal::report {

// A number that changes, and what it was at the newest peak. Peaks are numbered.
class AtPeak {
 public:
  uint64_t now() const { return now_; }
  uint64_t At(uint64_t peak) const { return changed_after_ == peak ? then_ : now_; }
  void Set(uint64_t value, uint64_t peak) {
    if (changed_after_ != peak) then_ = now_;
    changed_after_ = peak;
    now_ = value;
  }

 private:
  uint64_t now_ = 0;
  uint64_t then_ = 0;
  uint64_t changed_after_ = UINT64_MAX;
};

class PoolReplay final : public MemoryListener {
 public:
  PoolReplay(ReportModel& report, uint32_t rank, Kept& kept, MemoryBook& book)
      : report_(&report), rank_(rank), kept_(&kept), book_(&book) {}

  // After a gap: what pools hold is what the chapter retells.
  void BeginEra(int64_t time);
  void Take(int64_t time, const recording::PoolBytes& entry);
  void Take(int64_t time, const recording::SmallBlocks& entry);
  void Take(int64_t time, const recording::Registered& entry);
  void Take(int64_t time, const recording::Deregistered& entry);
  // Ends what is known to have ended in a gap, keeps what still lives, and lists who held the memory at the peak.
  void Finish();

  void Served(int64_t time, Memory& block) override;
  void Freed(int64_t time, const Memory& block) override;
  void SegmentMade(int64_t time, Memory& segment) override;
  void SegmentGone(int64_t time, const Memory& segment, const Memory& gone) override;
  void SegmentLeft(int64_t time, Memory& segment) override;
  void BlockRetold(int64_t time, const Memory& block) override { Hold(block, time); }
  void SegmentRetold(int64_t time, const Memory& segment) override;
  void PoolMade(const recording::PoolMade& entry, const Life& life) override;
  void PoolGone(int64_t time, uint64_t handle) override;

  // The index of a pool that lives, by its handle; kNone without one.
  uint32_t IndexOf(uint64_t handle) const;
  PoolModel& ModelOf(uint32_t pool) const { return pools()[pool]; }

 private:
  struct LivingRegistration {
    uint32_t index = 0;
    Life life;
  };
  struct LivingPool {
    BytePoint now;
    bool retold = false;                    // `now` is of the beginning of an era, and not in the series yet
    std::map<uint64_t, uint32_t> segments;  // indices by address
    std::map<std::pair<uint64_t, uint64_t>, LivingRegistration> registrations;  // by address and communicator
    AtPeak allocated;
    std::map<uint64_t, AtPeak> cached;  // blocks by their bytes
  };
  struct Holder {
    AtPeak bytes;
    AtPeak blocks;
  };

  const Eras& eras() const { return book_->eras(); }
  std::vector<PoolModel>& pools() const { return report_->ranks[rank_].pools; }
  // The index of a budget by its name, a text's index.
  uint32_t BudgetOf(uint32_t name, int64_t device);
  void BeginSegment(const Memory& segment, int64_t from, uint32_t* number);
  uint32_t SegmentAt(uint32_t pool, uint64_t address) const;
  void Keep(const Memory& block, int64_t to);
  // A block that is known counts in its pool's bytes.
  void Hold(const Memory& block, int64_t time);
  void LetGo(const Memory& block, int64_t time);
  void Change(uint32_t pool, int64_t time, const BytePoint& bytes);
  void ListHolders();
  void ListSmallBlocks(uint32_t pool, uint64_t listed);

  ReportModel* report_;
  uint32_t rank_;
  Kept* kept_;
  MemoryBook* book_;
  std::unordered_map<uint64_t, uint32_t> indices_;           // of living pools by their handles
  std::vector<LivingPool> living_;                           // by index, those that are gone too
  std::map<std::pair<uint32_t, uint32_t>, Holder> holders_;  // by pool and stack
  std::unordered_map<uint64_t, uint32_t> streams_;
  int64_t era_begin_ = kUnknown;
  uint64_t allocated_ = 0;  // in all pools
  uint64_t peak_ = 0;       // how many there were
};

}  // namespace commpool::internal::report
