// The C ABI: how other processes reach a pool's memory.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "commpool/share.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/structs.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "src/library/sharing/ticket.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

static_assert(COMMPOOL_TICKET_BYTES == kMostTicketBytes + 1);

Status CheckTicketRoom(const char* ticket, size_t capacity) {
  if (ticket == nullptr) return NullOutput();
  if (capacity >= COMMPOOL_TICKET_BYTES) return Status();
  return InvalidArgument("a ticket needs room for ", COMMPOOL_TICKET_BYTES, " bytes, and capacity is ", capacity);
}

Status WriteTicket(const Result<std::string>& text, char* ticket) {
  if (text.ok()) std::memcpy(ticket, text->c_str(), text->size() + 1);
  return text.status();
}

Result<std::shared_ptr<Pool>> PoolAt(Runtime& runtime, const void* pointer) {
  const commpool_block block = COMMPOOL_TRY(BlockAt(runtime, pointer));
  return runtime.pools().Find(block.pool);
}

// Default streams are those of the device, whatever is current on this thread.
Status RefuseCapture(Runtime& runtime, int device, CUstream stream) {
  const std::shared_ptr<DeviceState> of_device = COMMPOOL_TRY(runtime.devices().Get(device));
  const ContextGuard current(runtime.driver(), of_device->context());
  const CUstreamCaptureStatus capturing = COMMPOOL_TRY(CaptureStatusOf(runtime.driver(), stream));
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return Status();
  return FailedPrecondition(
      "the stream captures: end reads and updates around the launch of the graph, not inside of it");
}

Result<Ticket> ParseTicket(const char* ticket) {
  if (ticket == nullptr) return InvalidArgument("the ticket is null");
  return Ticket::Parse(std::string_view(ticket, strnlen(ticket, COMMPOOL_TICKET_BYTES)));
}

Result<ImportOptions> ParseImportOptions(const commpool_import_options* given) {
  ImportOptions options;
  if (given == nullptr) return options;
  COMMPOOL_TRY(CheckStructBytes("import_options", given->struct_bytes, sizeof(*given)));
  COMMPOOL_TRY(ReadWord("addresses", given->addresses, {"ANY", "SAME"}, &options.addresses));
  if (given->device < COMMPOOL_CURRENT_DEVICE) return InvalidArgument("there is no device ", given->device);
  if (given->deadline_ms == 0) return InvalidArgument("deadline_ms is 0: no owner could answer in time");
  options.device = given->device;
  options.deadline_ms = std::min(given->deadline_ms, kLongestDeadlineMs);
  return options;
}

template <typename Body>
commpool_status WithImport(commpool_import handle, Body body, const char* name = __builtin_FUNCTION()) noexcept {
  const auto found = [&](Runtime& runtime) -> Status {
    const std::shared_ptr<PoolImport> import = COMMPOOL_TRY(runtime.imports().Find(handle));
    return body(runtime, *import);
  };
  return WithRuntime(found, name);
}

}  // namespace

commpool_status commpool_pool_share(commpool_pool pool, commpool_imports imports, char* ticket, size_t capacity) {
  return WithPool(pool, [&](Pool& found) -> Status {
    COMMPOOL_TRY(CheckTicketRoom(ticket, capacity));
    const auto allowed = COMMPOOL_TRY(WordOf<Imports>("imports", imports, {"REFUSE_SLEEP", "SLEEP_TOO"}));
    return WriteTicket(found.segments().exporter.Ticket(allowed), ticket);
  });
}

commpool_status commpool_block_share(const void* pointer, commpool_writes writes, char* ticket, size_t capacity) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    COMMPOOL_TRY(CheckTicketRoom(ticket, capacity));
    const auto allowed = COMMPOOL_TRY(WordOf<Writes>("writes", writes, {"GO_ON", "ENDED"}));
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(PoolAt(runtime, pointer));
    return WriteTicket(pool->segments().exporter.TicketOf(AddressOf(pointer), allowed), ticket);
  });
}

commpool_status commpool_update_begin(const void* pointer) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(PoolAt(runtime, pointer));
    return pool->segments().exporter.BeginUpdate(AddressOf(pointer));
  });
}

commpool_status commpool_update_end(const void* pointer, CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(PoolAt(runtime, pointer));
    const StreamName name = COMMPOOL_TRY(runtime.NameFor(*pool, stream));
    const PassedStream passes(name.key, stream);
    COMMPOOL_TRY(RefuseCapture(runtime, PlaceOf(name.key), stream));
    COMMPOOL_TRY(pool->RecordStream(AddressOf(pointer), name.key));  // its free waits for the update
    return pool->segments().exporter.EndUpdate(AddressOf(pointer), stream, name.key);
  });
}

commpool_status commpool_import_open(const char* ticket, const commpool_import_options* options,
                                     commpool_import* import) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (import == nullptr) return NullOutput();
    ImportOptions checked = COMMPOOL_TRY(ParseImportOptions(options));
    checked.quiesce = [&devices = runtime.devices()](int device, uint64_t deadline_ms) {
      return devices.Quiesce({device}, deadline_ms);
    };
    const Ticket parsed = COMMPOOL_TRY(ParseTicket(ticket));
    if (runtime.shares().IsOwn(parsed)) {
      return FailedPrecondition("the ticket is of this process itself, where the pool's own pointers serve");
    }
    std::unique_ptr<PoolImport> opened = COMMPOOL_TRY(PoolImport::Open(runtime.driver(), parsed, checked));
    *import = runtime.imports().Add(std::move(opened));
    return Status();
  });
}

commpool_status commpool_import_block(commpool_import import, const char* ticket, void** pointer, uint64_t* bytes) {
  return WithImport(import, [&](Runtime&, PoolImport& found) -> Status {
    if (pointer == nullptr) return NullOutput();
    const Ticket parsed = COMMPOOL_TRY(ParseTicket(ticket));
    const ImportedBlock block = COMMPOOL_TRY(found.Block(parsed));
    *pointer = reinterpret_cast<void*>(block.address);
    if (bytes != nullptr) *bytes = block.bytes;
    return Status();
  });
}

commpool_status commpool_import_address(commpool_import import, const void* theirs, void** pointer) {
  return WithImport(import, [&](Runtime&, PoolImport& found) -> Status {
    if (pointer == nullptr) return NullOutput();
    const CUdeviceptr address = COMMPOOL_TRY(found.Address(AddressOf(theirs)));
    *pointer = reinterpret_cast<void*>(address);
    return Status();
  });
}

commpool_status commpool_read_begin(commpool_import import, const void* pointer) {
  return WithImport(import, [&](Runtime&, PoolImport& found) { return found.BeginRead(AddressOf(pointer)); });
}

commpool_status commpool_read_end(commpool_import import, const void* pointer, CUstream_st* stream) {
  return WithImport(import, [&](Runtime& runtime, PoolImport& found) -> Status {
    COMMPOOL_TRY(RefuseCapture(runtime, found.device(), stream));
    return found.EndRead(AddressOf(pointer), stream);
  });
}

commpool_status commpool_import_release(commpool_import import, const void* pointer, CUstream_st* stream) {
  return WithImport(import, [&](Runtime& runtime, PoolImport& found) -> Status {
    COMMPOOL_TRY(RefuseCapture(runtime, found.device(), stream));
    return found.Release(AddressOf(pointer), stream);
  });
}

commpool_status commpool_import_close(commpool_import import) {
  return WithImport(import, [&](Runtime& runtime, PoolImport& found) -> Status {
    COMMPOOL_TRY(runtime.devices().Quiesce({found.device()}, found.deadline_ms()));
    // Of two threads that close one import, one gets NOT_FOUND.
    return COMMPOOL_TRY(runtime.imports().Take(import))->Close();
  });
}

commpool_status commpool_share(const void* pointer, void** base, uint64_t* bytes, int* descriptor) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (base == nullptr || bytes == nullptr || descriptor == nullptr) return NullOutput();
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(PoolAt(runtime, pointer));
    const SharedSegment shared = COMMPOOL_TRY(pool->segments().exporter.Share(AddressOf(pointer)));
    *base = reinterpret_cast<void*>(shared.address);
    *bytes = shared.bytes;
    *descriptor = shared.descriptor;
    return Status();
  });
}

commpool_status commpool_peers_of(const void* pointer, commpool_peers* peers) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (peers == nullptr) return NullOutput();
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(PoolAt(runtime, pointer));
    const SymmetricMode* const mode = COMMPOOL_TRY(SymmetricMode::Of(*pool, "peers_of"));
    const PeerPlaces places = COMMPOOL_TRY(mode->PeersOf(AddressOf(pointer)));
    *peers = {reinterpret_cast<char*>(places.first), places.stride_bytes, places.ranks};
    return Status();
  });
}
