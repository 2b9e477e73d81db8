// RegistrarBook: the libraries beside NCCL that register a pool's segments, and which segments each of them has.
//
// RegistrationSet owns one and calls it wherever it tells communicators. One thread at a time, which holds the pool's
// collective lock, changes the book and runs the program's functions; any thread may ask meanwhile. Those functions run
// without a lock of the book, with the device's context current, and may not call the library (base/user_function.h).
// One that does not return by the deadline is named in the log.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/registrar.h"
#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/registration/registered_range.h"

namespace commpool::internal {

// A program's registrar, copied: the program may change its struct after the call that passed it.
struct Registrar {
  std::string name;
  commpool_registrar functions = {};  // without the name, which belongs to the program
};

// What a program passed: a registrar, none, or why it cannot be one. All ranks of a symmetric pool hear the last.
using RegistrarRequest = Result<std::optional<Registrar>>;

class RegistrarBook {
 public:
  explicit RegistrarBook(uint64_t deadline_ms) : deadline_ms_(deadline_ms) {}

  // While it lives its segments count as registered: nobody may unmap what a call is about to register, also where that
  // call lets other threads grow the pool meanwhile. The caller holds the growth lock when it makes one.
  class [[nodiscard]] Claim {
   public:
    Claim(RegistrarBook& book, const std::vector<SegmentToRegister>& segments);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    RegistrarBook& book_;
  };

  // Registers the segments with the registrar, and remembers it. Where it refuses such segments, or one of them fails,
  // those registered by this call are deregistered, and nothing has changed.
  Status Add(Registrar registrar, const commpool_segment_traits& traits,
             const std::vector<SegmentToRegister>& segments);

  // Whether the program hears that its functions are called no more.
  enum class Farewell { kTold, kUntold };
  // Ends the registrations, and forgets the registrar. What it fails to end stays, and so does the registrar. The
  // caller has waited for the device. OK for a name that is not there.
  Status Remove(const std::string& name, Farewell farewell = Farewell::kTold);
  Status RemoveAll();

  // A registration that a call made: for its undo.
  using Made = std::vector<std::pair<std::string, uint32_t>>;
  // Registers with each registrar the segments that it lacks. Where one fails none that this call made is left.
  Result<Made> RegisterLacking(const std::vector<SegmentToRegister>& segments);
  void Undo(const Made& made);
  // Ends the segment's registrations. Goes on after a failure, and returns the first.
  Status DeregisterSegment(uint32_t index);
  // The segments have other indexes from now on: finds them by their addresses.
  void Renumber(const std::vector<SegmentToRegister>& segments);

  bool Has(const std::string& name) const;
  bool IsRegistered(uint32_t index) const;  // or about to be
  uint64_t registrations() const;
  // The number of pairs of a segment (of `segments` in all) and a registrar that are not registered yet.
  uint64_t pending(uint64_t segments) const;

 private:
  struct Range {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    void* handle = nullptr;  // the registrar's own
  };
  struct Member {
    Registrar registrar;
    std::map<uint32_t, Range> ranges = {};  // by segment index; the changing thread reads without the lock
  };

  // In the order in which they were added. The thread that changes the book may use them after this call.
  std::vector<Member*> Members() const;
  Member* Find(const std::string& name) const;
  // Calls one of the registrar's functions. `what`: "registering 2 MiB".
  template <typename Function>
  Status Call(const Registrar& registrar, const std::string& what, Function function) const;
  Status RegisterOne(Member& member, const SegmentToRegister& segment);
  Status DeregisterOne(Member& member, uint32_t index);

  const uint64_t deadline_ms_;
  mutable Mutex mutex_{LockRank::kLeaf};
  std::vector<SegmentToRegister> claimed_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Member>> members_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
