// Which memory other processes may map.

#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

namespace {

// A process that maps memory keeps using it, so the memory has to stay where it is until its block is freed. Not a
// matter of the backing, so it is asked apart from Backing::CanShare.
Status CheckStays(const PoolConfiguration& configuration) {
  if (configuration.symmetric()) {
    return NotSupported(
        "the ranks of a symmetric pool agree when memory goes, and an importer is no rank: "
        "processes of its communicator reach it through windows");
  }
  if (configuration.mode == Mode::kExpandable) {
    return NotSupported("an expandable pool moves its pages: share memory of a fixed pool");
  }
  return Status();
}

}  // namespace

// Any live block will do, and an address inside of it too. The mark comes before the descriptor.
Result<commpool_block> MemoryExporter::Mark(CUdeviceptr address, engine::Mark mark) {
  COMMPOOL_TRY(basis_.CheckAwake());
  COMMPOOL_TRY(basis_.Named(CheckStays(basis_.configuration).under("share")));
  const commpool_block block = COMMPOOL_TRY(basis_.Named(FindBlock(basis_, blocks_, address), "share"));
  if (blocks_.SetMark(reinterpret_cast<CUdeviceptr>(block.pointer), mark)) return block;
  return basis_.Named(NotFound("share: the block was freed"));
}

// The descriptor stays the segment's own.
Result<SharedSegment> MemoryExporter::Share(CUdeviceptr address) {
  MutexLock growth(basis_.growth());  // nobody sleeps, or releases the segment, meanwhile
  const commpool_block block = COMMPOOL_TRY(Mark(address, engine::Mark::kShared));
  Segment& segment = book_.Get(static_cast<engine::SegmentIndex>(block.segment));
  const int descriptor = COMMPOOL_TRY(basis_.Named(segment.Descriptor(), "share"));
  return SharedSegment{segment.address(), segment.bytes(), descriptor};
}

// The server keeps a weak pointer: a share keeps no pool alive.
Result<std::string> MemoryExporter::Ticket(Imports imports) {
  COMMPOOL_TRY(basis_.CheckOpen());
  Status may = CheckStays(basis_.configuration);
  if (may.ok()) may = backing_.CanShare();
  COMMPOOL_TRY(basis_.Named(may.under("share")));
  const DeviceInfo info = COMMPOOL_TRY(DescribeDevice(basis_.driver, basis_.device->device()));
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.runtime.shares.SharePool({.number = basis_.handle,
                                          .title = basis_.title,
                                          .device = info.pci_bus_id,
                                          .memory = std::dynamic_pointer_cast<SharedMemory>(basis_.owner.lock()),
                                          .deadline_ms = basis_.deadline_ms()},
                                         imports);
}

// The pool is shared at its first block, where the program has not done so before.
Result<std::string> MemoryExporter::TicketOf(CUdeviceptr address, Writes writes) {
  if (!basis_.runtime.shares.IsShared(basis_.handle)) COMMPOOL_TRY(Ticket(Imports::kRefuseSleep));
  const auto mark = [&]() -> Result<commpool_block> {
    MutexLock growth(basis_.growth());
    return Mark(address, engine::Mark::kTicket);
  };
  const commpool_block block = COMMPOOL_TRY(mark());
  // The descriptor follows later, when an importer asks for it (Export).
  return basis_.runtime.shares.ShareBlock(basis_.handle, {.address = reinterpret_cast<CUdeviceptr>(block.pointer),
                                                          .bytes = block.bytes,
                                                          .segment = block.segment,
                                                          .writes = writes});
}

// Without a lock: it waits.
Status MemoryExporter::BeginUpdate(CUdeviceptr address) {
  COMMPOOL_TRY(basis_.CheckOpen());
  const commpool_block block = COMMPOOL_TRY(FindBlock(basis_, blocks_, address));
  const auto start = reinterpret_cast<CUdeviceptr>(block.pointer);
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.Named(basis_.runtime.shares.BeginUpdate(basis_.handle, start).under("update_begin"));
}

// Without CheckOpen: importers wait for the end of an update even where the pool has closed meanwhile.
// An update's event is of the pool's device: there a default stream waits for a stream of another device.
Status MemoryExporter::EndUpdate(CUdeviceptr address, CUstream stream, StreamKey key) {
  const commpool_block block = COMMPOOL_TRY(FindBlock(basis_, blocks_, address));
  const auto start = reinterpret_cast<CUdeviceptr>(block.pointer);
  const int device = basis_.device->device();
  if (PlaceOf(key) != device) {
    stream = IsDefault(stream) ? stream : nullptr;
    COMMPOOL_TRY(basis_.fences().MakeWaitForStream(KeyOfStream(stream, device), key));
  }
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.Named(basis_.runtime.shares.EndUpdate(basis_.handle, start, stream).under("update_end"));
}

// Runs on the share server's thread. The growth lock keeps the segment from going, and the pool from falling asleep,
// until the copy of its descriptor is made.
Result<SharedMemory::Exported> MemoryExporter::Export(CUdeviceptr address, std::optional<uint64_t> known) {
  COMMPOOL_TRY(basis_.CheckAwake());  // a sleep has the lock while it copies, and every pool's importers would wait
  MutexLock growth(basis_.growth());
  COMMPOOL_TRY(basis_.CheckAwake());
  for (const SegmentToRegister& listed : book_.List()) {
    if (address < listed.address || address - listed.address >= listed.bytes) continue;
    SharedMemory::Exported exported{.address = listed.address, .bytes = listed.bytes, .number = listed.index};
    // The importer has this segment mapped already, so it needs no handle.
    if (known == exported.number) return exported;
    Segment& segment = book_.Get(listed.index);
    if (const std::optional<CUmemFabricHandle> fabric = segment.FabricHandle()) {
      exported.fabric.assign(reinterpret_cast<const char*>(fabric->data), sizeof(fabric->data));
      return exported;
    }
    const int own = COMMPOOL_TRY(basis_.Named(segment.Descriptor()));
    if (own < 0) return basis_.Named(NotSupported("a segment has no handle"));
    exported.descriptor = COMMPOOL_TRY(CopyOf(own));
    return exported;
  }
  return basis_.Named(NotFound("no segment has that address"));
}

// Blocks with tickets are not meant: their importers are told to let go (ShareServer::TellAsleep).
Status MemoryExporter::CheckNoneShared() const {
  if (!blocks_.Ask(&engine::Engine::AnyHasMark, engine::Mark::kShared)) return Status();
  return FailedPrecondition("other processes may use blocks that were shared: free those blocks first");
}

}  // namespace commpool::internal
