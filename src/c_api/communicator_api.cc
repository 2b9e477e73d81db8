// The C ABI: NCCL's own memory of a communicator.
#include <algorithm>

#include "commpool/communicator.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/pool/options.h"
#include "src/registration/communicator.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

constexpr uint64_t kDefaultDeadlineMs = 60000;

template <typename Value, typename Output>
void WriteWhereAsked(Value value, Output* output) {
  if (output != nullptr) *output = static_cast<Output>(value);
}

}  // namespace

commpool_status commpool_communicator_sleep(ncclComm* communicator, uint64_t deadline_ms) {
  return WithRuntime([&](Runtime& runtime) {
    const uint64_t deadline = deadline_ms == 0 ? kDefaultDeadlineMs : std::min(deadline_ms, kLongestDeadlineMs);
    return runtime.sleeping_communicators().Sleep(communicator, deadline);
  });
}

commpool_status commpool_communicator_wake(ncclComm* communicator) {
  return WithRuntime([&](Runtime& runtime) { return runtime.sleeping_communicators().Wake(communicator); });
}

commpool_status commpool_communicator_memory(ncclComm* communicator, uint64_t* bytes, uint64_t* sleeping_bytes,
                                             int* asleep) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (communicator == nullptr) return Status(StatusCode::kInvalidArgument, "the communicator is null");
    const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime.driver(), communicator));
    WriteWhereAsked(memory.bytes, bytes);
    WriteWhereAsked(memory.sleeping_bytes, sleeping_bytes);
    WriteWhereAsked(memory.asleep, asleep);
    return Status();
  });
}
