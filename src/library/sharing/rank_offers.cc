#include "src/library/sharing/rank_offers.h"

#include <poll.h>

#include <optional>

#include "src/library/base/interruption.h"
#include "src/library/base/try.h"
#include "src/library/sharing/message_channel.h"
#include "src/library/sharing/share_folder.h"

namespace commpool::internal {

namespace {

Result<Received> Await(MessageChannel& channel, Deadline deadline) {
  WaitSlices slices(deadline);
  while (true) {
    std::optional<Received> received = COMMPOOL_TRY(channel.Receive());
    if (received) return std::move(*received);
    if (slices.Over()) return DeadlineExceeded("it does not answer");
    pollfd wait{channel.descriptor(), POLLIN, 0};
    poll(&wait, 1, PollWait(slices.end()));
  }
}

}  // namespace

Result<FileDescriptor> TakeOffered(const OfferPlace& place, size_t number, Deadline deadline) {
  PrivateDescriptor socket = COMMPOOL_TRY(ConnectToOwner(place.socket, deadline));
  COMMPOOL_TRY(CheckPeer(socket.get()));
  MessageChannel channel(std::move(socket));
  COMMPOOL_TRY(channel.Send({ShareKind::kTakeOffer, {place.secret[0], place.secret[1], number}}));
  Received answer = COMMPOOL_TRY(Await(channel, deadline));
  COMMPOOL_TRY(CheckAnswer(answer));
  if (answer.message.kind == ShareKind::kOffer && answer.descriptor.valid()) return std::move(answer.descriptor);
  return RemoteFailure("it answered another question");
}

}  // namespace commpool::internal
