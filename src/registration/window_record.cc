#include "src/registration/window_record.h"

#include "src/base/try.h"
#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

// As the device has it; what follows is for networks.
struct RecordOnDevice {
  uint64_t host;
  WindowRecord::Fields fields;
};

// 0 where it is not known.
uint64_t RecordBytes(int version) {
  switch (version) {
    case 22809:
      return 72;
    case 23007:
      return 88;
    default:
      return 0;
  }
}

// CUDA's pools give multiples of 512, and 64 records of these sizes are one: so an address tells the slot.
void FindPage(uint64_t record_bytes, WindowRecord* record) {
  constexpr uint64_t kAlignment = 512;
  record->page = reinterpret_cast<uint64_t>(record->window);
  while (record->page % kAlignment != 0 && record->slot < 63) {
    record->page -= record_bytes;
    ++record->slot;
  }
}

}  // namespace

Result<std::optional<WindowRecord>> ReadWindowRecord(const Driver& driver, const Communicator& communicator,
                                                     ncclWindow_t window) {
  const uint64_t record_bytes = RecordBytes(driver.nccl.version);
  if (record_bytes == 0) return std::optional<WindowRecord>();
  RecordOnDevice read = {};
  CopyStream stream = COMMPOOL_TRY(CopyStream::Make(driver));
  COMMPOOL_TRY(stream.Copy(reinterpret_cast<CUdeviceptr>(&read), reinterpret_cast<CUdeviceptr>(window), sizeof read));
  COMMPOOL_TRY(stream.Await());
  const WindowRecord::Fields& fields = read.fields;
  const bool is_record = fields.rank == communicator.rank && fields.own_place >= 0 &&
                         fields.own_place < communicator.ranks && fields.stride_4g != 0;
  if (!is_record) return std::optional<WindowRecord>();
  WindowRecord record{.window = window, .fields = fields};
  FindPage(record_bytes, &record);
  return std::optional(record);
}

}  // namespace commpool::internal
