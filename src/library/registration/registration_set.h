// Which segments of a pool are registered with which communicators: one registration for each pair (rule 3).
//
// One thread at a time, which holds the pool's collective lock, changes the set; any thread may forget a communicator
// and ask meanwhile. It makes no NCCL call under a lock of its own. It serves communicators by their numbers, home
// first, and those of one number as they were added: every rank registers and deregisters in this order.
//
// A registration is made or unfinished. It is unfinished where a call gave it up while a nonblocking communicator went
// on with it: NCCL may still come to have the segment, so the segment stays mapped until that registration or its
// communicator has ended. Where NCCL was not told of an end, it may hold the memory for good.
//
// An end that fails is tried again by each later call that ends the same. Until then the segment counts as registered.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/recording/recorder.h"
#include "src/library/registration/communicator.h"
#include "src/library/registration/intent.h"
#include "src/library/registration/registered_range.h"
#include "src/library/registration/registrar_book.h"
#include "src/library/registration/window_book.h"

namespace commpool::internal {

class RegistrationSet {
 public:
  // `windows` has its windows as long as they are registered; `record`, where not null, notes when they came and went.
  RegistrationSet(const Driver& driver, RegistrationKind kind, uint64_t deadline_ms, WindowBook& windows,
                  const recording::PoolRecorder* record = nullptr)
      : driver_(driver),
        kind_(kind),
        deadline_ms_(deadline_ms),
        windows_(windows),
        record_(record),
        registrars_(deadline_ms) {}
  ~RegistrationSet();

  bool Has(ncclComm_t communicator) const;  // whether segments are registered with it from now on
  bool empty() const;                       // whether there is no communicator, nor any left that NCCL would not end
  std::vector<Communicator> Communicators() const;

  // Registers the segments that the communicator lacks, in ascending order, and remembers the communicator. Where one
  // fails those registered by this call are deregistered, and nothing has changed unless the error says so.
  Status Add(const Communicator& communicator, const std::vector<SegmentToRegister>& segments);

  // kFailedPrecondition where an end failed: only a call that quiesces first may try that again. Asked before Add.
  Status CheckNoneEnding(ncclComm_t communicator) const;

  // kDeadlineExceeded where NCCL may still be at a registration that was given up: of this communicator, else of any;
  // of this segment, else of any. Until the communicator is abandoned nobody may register there, or unmap the memory.
  Status CheckFinished(ncclComm_t communicator = nullptr, std::optional<uint32_t> index = {}) const;

  // Registers a segment with every communicator, but not with registrars. Where one fails those before keep it: the
  // caller deregisters the segment, and so hears whether that worked.
  Status RegisterSegment(const SegmentToRegister& segment);

  // Registers with each communicator and registrar the segments that it lacks. Returns the number of registrations
  // made; where one fails none is left.
  Result<uint64_t> RegisterPending(const std::vector<SegmentToRegister>& segments);

  // Before all segments are deregistered, to be registered again: notes where their windows are, and finds an order
  // that brings them back there. Returns what all ranks of each communicator must have alike. kFailedPrecondition, and
  // nothing is noted, where there is none, or NCCL's places are not known.
  Result<std::vector<ReturnReport>> PlanReturn();
  // Nothing is to come back to its place.
  void ForgetReturn() { returns_.clear(); }
  // Registers the segments again with every communicator, in the planned order, and what is lacking then; last with
  // the registrars. Where one fails, those before stay registered.
  Status RegisterAgain(const std::vector<SegmentToRegister>& segments);
  // Which windows are not where they were when their return was planned; empty where all are, or none was planned.
  std::string DescribeMoved() const;

  // Go on after a failure, and return the first. From here on nobody finds the windows, and the communicator is known
  // no more, also where NCCL reports an error. The caller has quiesced. NCCL asks no other rank: this works beside a
  // dead one, as long as the communicator is alive. They fail as CheckFinished does, and then keep the communicator.
  Status DeregisterSegment(uint32_t index);
  Status Remove(ncclComm_t communicator);
  Status RemoveAll();
  // Ends registrations that were given up, if NCCL finishes them within the time; the others fail in the abort that
  // follows.
  Status EndUnfinished(ncclComm_t communicator, uint64_t wait_ms);

  // Drops the handles of a communicator that has ended, without a call. Returns the bytes of windows that NCCL may hold
  // for good.
  uint64_t Forget(ncclComm_t communicator);

  // Who registers the segments beside NCCL. What this set does with a segment it does there too.
  RegistrarBook& registrars() { return registrars_; }

  // Records what is registered, for a recording that begins.
  void RecordPresent() const;

  bool IsRegistered(uint32_t index) const;  // or may come to be
  // Whether NCCL has any segment there, or may come to have one; also where an end failed.
  bool IsRegisteredWith(ncclComm_t communicator) const;
  uint64_t registrations() const;
  // The bytes of windows that NCCL keeps for good; a segment counts once for all communicators.
  uint64_t held_bytes() const;
  // The number of pairs of a segment (of `segments` in all) and a communicator that are not registered yet.
  uint64_t pending(uint64_t segments) const;

 private:
  struct Member {
    Communicator communicator;
    std::vector<std::pair<uint32_t, UnfinishedRange>> unfinished = {};  // by segment index, the oldest first
  };

  // A registration that NCCL has. Nobody finds one that is ending, and its communicator may be no member any more. On
  // other ranks NCCL may have ended theirs; all of them register the segment again, or none.
  struct Registration {
    Communicator communicator;
    uint32_t index = 0;
    RegisteredRange range = {};
    bool serves = true;  // else it is ending
  };
  using Choice = FunctionRef<bool(const Registration& registration)>;

  // How the windows of a communicator come back.
  struct Return {
    Communicator communicator;
    std::vector<std::pair<SegmentToRegister, std::optional<WindowRecord>>> windows = {};
    std::vector<WindowStep> steps = {};  // by the windows' places
  };

  // The same order on every rank, for NCCL is called in it.
  static bool ComesBefore(const Registration& one, const Registration& other) {
    return std::pair(one.communicator.number, one.index) < std::pair(other.communicator.number, other.index);
  }
  Status NoteWindow(const Communicator& communicator, const RegisteredRange& range);
  Status RegisterOne(const Communicator& communicator, const SegmentToRegister& segment);
  // Whether the communicator lacked the segment.
  Result<bool> RegisterWhereLacking(const Communicator& communicator, const SegmentToRegister& segment);
  Result<uint64_t> RegisterLacking(const std::vector<Communicator>& communicators,
                                   const std::vector<SegmentToRegister>& segments);
  Status DeregisterOne(const Communicator& communicator, uint32_t index);
  // Ends the chosen registrations, those too that an earlier call could not end. What NCCL does not end stays known:
  // meanwhile nobody may unmap its memory.
  Status End(Choice chosen);
  // The communicator is no member any more. Returns the bytes of windows that NCCL may hold for good.
  uint64_t Drop(ncclComm_t communicator);
  uint64_t Count(Choice chosen) const;
  // Whether NCCL has segments there for the pool's use, or may come to have them.
  bool ServesAny(ncclComm_t communicator) const;
  // The end of a registration: nobody finds its window from here on.
  void HideWindow(ncclComm_t communicator, const RegisteredRange& range);
  void RecordMade(ncclComm_t communicator, const RegisteredRange& range, uint64_t cost) const;
  // Notes that NCCL was not told of this end. Returns its bytes; 0 where NCCL lets go with the communicator.
  uint64_t Hold(const RegisteredRange& range);

  const Driver& driver_;
  const RegistrationKind kind_;
  const uint64_t deadline_ms_;
  WindowBook& windows_;
  const recording::PoolRecorder* const record_;
  RegistrarBook registrars_;
  std::vector<Return> returns_ = {};  // of the one thread that changes the set
  mutable Mutex mutex_{LockRank::kLeaf};
  std::vector<Member> members_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<Registration> known_ COMMPOOL_GUARDED_BY(mutex_);       // by communicator and segment, see ComesBefore
  std::map<CUdeviceptr, uint64_t> held_ COMMPOOL_GUARDED_BY(mutex_);  // bytes, by their segments' addresses
};

}  // namespace commpool::internal
