// Where copies of blocks are kept on the host, and copies between a device and that place. Several copies run at a
// time: so the device's copy engines never wait for the next one, and a file is read or written while other parts are
// copied. One thread at a time.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_HOST_COPIES_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_HOST_COPIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "commpool/status.h"
#include "src/library/base/kept_file.h"
#include "src/library/base/progress.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/options.h"
#include "src/library/pool/shared/memory_account.h"

namespace commpool::internal {

// Host memory, or a file, that holds copies of blocks. KeptBlocks owns it, and the pool's growth lock guards it. It
// owns the memory or the file, and its room in the account.
class KeptMemory {
 public:
  // Makes memory or a file of so many bytes, which count in the account as long as the object lives. REQUIRES: the
  // device's context is current.
  static Result<KeptMemory> Make(const Driver& driver, const KeptCopies& copies, uint64_t bytes,
                                 MemoryAccount& account);

  // The address for the driver's copies; 0 for a file, whose contents go through pinned memory.
  CUdeviceptr address() const;
  KeptFile* file() { return std::get_if<KeptFile>(&place_); }
  // Call it when all copies are in it. A file that somebody changes after that is refused (KeptFile::Seal).
  Status Seal() { return file() == nullptr ? Status() : file()->Seal(); }
  // The first byte, for the program to read. Valid as long as the object lives.
  Result<const std::byte*> Read();
  // Call it when the runtime ends: then no driver call releases it.
  void Abandon();

 private:
  using Place = std::variant<PinnedMemory, HostPages, KeptFile>;

  KeptMemory(Place place, Room room) : place_(std::move(place)), room_(std::move(room)) {}

  Place place_;
  Room room_;
};

// KeptBlocks owns one, and uses it in a sleep and in a wake. It owns the copiers, with their streams and staging
// memory, from the first copy to the end of Await.
class HostCopies {
 public:
  enum class Direction { kToHost, kToDevice };
  // One copy of adjacent bytes.
  struct Run {
    CUdeviceptr device = 0;
    KeptMemory* memory = nullptr;
    uint64_t offset = 0;  // in `memory`; for a file, equal to `device` modulo KeptFile::kAlignment
    uint64_t bytes = 0;
  };

  explicit HostCopies(const PoolBasis& basis) : basis_(basis) {}

  // Call it before the first Start. A user who waits sees `what` ("keeping") and how many of `bytes` are copied.
  void Begin(const char* what, uint64_t bytes) { progress_.emplace(basis_.title + ": " + what, bytes); }
  // Starts a copy; where all copiers are busy it first waits for the oldest. After a failure earlier copies still run:
  // call Await() in any case. REQUIRES: the device's context is current, and the memory lives until Await() returns.
  Status Start(Run run, Direction direction);
  // Waits for all copies. Returns `started` where that is a failure, else the first failure of a copy. Afterwards no
  // copy runs.
  Status Await(Status started);

 private:
  // How many copies run at a time.
  static constexpr size_t kCopiers = 4;

  // One copy at a time, with a stream of its own.
  struct Copier {
    CopyStream stream;
    PinnedMemory staging;  // for copies to and from files: the driver copies only between memories
    std::optional<Run> running;
    Direction direction = Direction::kToHost;
  };

  // REQUIRES: the part is no larger than one copier takes.
  Status StartPart(const Run& part, Direction direction);
  // Waits for its copy; writes it to its file where it goes to one.
  Status Finish(Copier& copier);

  const PoolBasis& basis_;
  std::array<Copier, kCopiers> copiers_;  // while copies run
  // Which copier is next; so also the one whose copy began first.
  size_t turn_ = 0;
  // Null while nothing is copied, and where nobody called Begin.
  std::optional<Progress> progress_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_HOST_COPIES_H_
