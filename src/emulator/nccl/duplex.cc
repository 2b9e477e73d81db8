#include "src/emulator/nccl/duplex.h"

#include <poll.h>

#include "src/library/base/interruption.h"
#include "src/library/base/try.h"

namespace commpool::internal::emulated_nccl {

namespace {

// poll skips a negative descriptor.
pollfd WaitOf(const Transfer& transfer) { return {transfer.left > 0 ? transfer.descriptor : -1, transfer.events(), 0}; }

}  // namespace

Status SendAndReceive(Connection& to, const void* sent, size_t sent_bytes, Connection& from, void* received,
                      size_t received_bytes, Deadline deadline) {
  Transfer out = to.Sending(sent, sent_bytes);
  Transfer in = from.Receiving(received, received_bytes);
  for (WaitSlices slices(deadline);;) {
    COMMPOOL_TRY(out.MoveSome());
    COMMPOOL_TRY(in.MoveSome());
    if (out.left == 0 && in.left == 0) return Status();
    pollfd waits[] = {WaitOf(out), WaitOf(in)};
    while (poll(waits, 2, PollWait(slices.end())) <= 0) {
      if (slices.Over()) return (in.left > 0 ? in : out).DeadlinePassed();
    }
  }
}

}  // namespace commpool::internal::emulated_nccl
